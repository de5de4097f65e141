-- no-writes
-- The time, at most `limit` schedules that are due, when the one after these is (false: none), and
-- whether the outbox holds anything.
-- uses: schedules
local function handle(base, request)
  local limit = request[1]
  local key = base .. ':due'
  local due = {}
  local names = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
  for index, name in ipairs(names) do
    due[index] = listed(load_schedule(base, name))
  end
  local next_due = redis.call('ZRANGE', key, #names, #names, 'WITHSCORES')[2]
  return {
    now, due, next_due and tonumber(next_due) or false, redis.call('EXISTS', base .. ':outbox') == 1,
  }
end
