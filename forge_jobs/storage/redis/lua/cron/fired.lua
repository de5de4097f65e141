-- allow-oom
-- The jobs of these records (number, how many were stored, how many dropped as duplicates) are in
-- their queues: counts them, once, and removes the records.
-- uses: schedules
local function settle(base, each)
  local number, fired, skipped = unpack(each)
  local packed = redis.call('HGET', base .. ':outbox', text(number))
  if not packed then
    return
  end
  redis.call('HDEL', base .. ':outbox', text(number))
  local is_read, record = pcall(cmsgpack.unpack, packed)
  local name, fired_at = unpack(is_read and type(record) == 'table' and record or {})
  local schedule = type(name) == 'string' and load_schedule(base, name)
  if schedule and not schedule.deleted then
    schedule.fired = schedule.fired + fired
    schedule.skipped = schedule.skipped + skipped
    schedule.last_fired_at = fired > 0 and fired_at or schedule.last_fired_at
    store_schedule(base, schedule)
  end
end

local function handle(base, records)
  for _, each in ipairs(records) do
    settle(base, each)
  end
end
