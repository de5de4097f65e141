-- Schedules, and what they have fired that is still to be brought to its queue.
--
-- Hash 'schedules': name -> msgpack of the FIELDS; next_at and last_fired_at are false when unset.
-- Zset 'due': those that fire by themselves, by next_at. Hash 'outbox': number -> msgpack of { name,
-- fired_at or false, jobs }, the jobs opaque; 'outbox_seq' the last number, which is that time or more.
-- So a fleet that lost its last writes gives no number again, as long as its clock goes on.

local FIELDS = {
  'spec', 'version', 'paused', 'edited', 'deleted', 'next_at', 'last_fired_at', 'fired', 'skipped',
  'error',
}

-- The schedule, deleted or not; nil when there is none.
local function load_schedule(base, name)
  local packed = redis.call('HGET', base .. ':schedules', name)
  if not packed then
    return nil
  end
  local values = cmsgpack.unpack(packed)
  local schedule = { name = name }
  for index, field in ipairs(FIELDS) do
    schedule[field] = values[index]
  end
  return schedule
end

-- As the next version.
local function store_schedule(base, schedule)
  schedule.version = schedule.version + 1
  local values = {}
  for index, field in ipairs(FIELDS) do
    values[index] = schedule[field]
  end
  redis.call('HSET', base .. ':schedules', schedule.name, cmsgpack.pack(values))
  local fires = schedule.next_at and not schedule.paused and schedule.error == ''
  if fires and not schedule.deleted then
    redis.call('ZADD', base .. ':due', schedule.next_at, schedule.name)
  else
    redis.call('ZREM', base .. ':due', schedule.name)
  end
end

-- Name and FIELDS, for an answer.
local function listed(schedule)
  local values = { schedule.name }
  for index, field in ipairs(FIELDS) do
    values[index + 1] = schedule[field]
  end
  return values
end

local function put_in_outbox(base, name, fired_at, jobs)
  local last = tonumber(redis.call('GET', base .. ':outbox_seq') or 0)
  local number = math.max(last + 1, now)
  redis.call('SET', base .. ':outbox_seq', text(number))
  redis.call('HSET', base .. ':outbox', text(number), cmsgpack.pack({ name, fired_at, jobs }))
  return number
end
