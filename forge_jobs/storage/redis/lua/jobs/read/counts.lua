-- no-writes
-- Answers whether there is such a queue, the jobs by status, and how many are due, held, running. Then how
-- long the oldest due job has waited, -1 when none is due.
local STATUSES = { 'blocked', 'pending', 'in_progress', 'failed', 'done', 'dead', 'cancelled' }
-- Expired jobs are swept away every few seconds. Beyond this many the answer is an estimate.
local MOST_EXPIRED = 2000

-- Returns the jobs in lines that are due and may not be claimed any more.
local function expired_and_ready(base)
  local expired, size = {}, 0
  local ids = redis.call(
    'ZRANGE', base .. ':expiring', '-inf', text(now), 'BYSCORE', 'LIMIT', 0, MOST_EXPIRED
  )
  for _, id in ipairs(ids) do
    local status, hold, run_at =
      unpack(read_fields(base .. ':j:' .. id, 'status', 'hold', 'run_at'))
    if status and status ~= 'blocked' and not hold and whole(run_at, 0) <= now then
      expired[id] = true
      size = size + 1
    end
  end
  return expired, size
end

-- Returns the due time of the first job of a line that has not expired, nil when none is due.
local function first_due(key, expired)
  local start, size = 0, 1
  while true do
    local found = redis.call('ZRANGE', key, start, start + size - 1, 'WITHSCORES')
    for index = 1, #found, 2 do
      local run_at = tonumber(found[index + 1])
      if run_at > now then
        return nil
      elseif not expired[found[index]] then
        return run_at
      end
    end
    if #found == 0 then
      return nil
    end
    start, size = start + size, 100
  end
end

local function handle(base)
  local by_status = {}
  for index, status in ipairs(STATUSES) do
    by_status[index] = redis.call('ZCARD', base .. (status == 'in_progress' and ':claimed' or ':s:' .. status))
  end
  local expired, due = expired_and_ready(base)
  due = -due
  local oldest
  local lines = redis.call('ZRANGE', base .. ':lines', 0, -1, 'WITHSCORES')
  spend(#lines + 15)
  for index = 1, #lines, 2 do
    local key, bound = base .. ':ready:' .. lines[index], bound_of(lines[index + 1])
    if bound <= now then
      due = due + redis.call('ZCOUNT', key, '-inf', now_text)
    end
    local first = bound <= (oldest or now) and first_due(key, expired)
    if first and (not oldest or first < oldest) then
      oldest = first
    end
  end
  return {
    redis.call('HEXISTS', base .. ':queue', 'max_workers') == 1, by_status, due,
    redis.call('ZCARD', base .. ':held'), redis.call('ZCARD', base .. ':started'),
    oldest and now - oldest or -1,
  }
end
