-- no-writes
-- Answers at most `limit` minutes, or hours, from `since` on and before `ends`: per minute the time, and
-- the hosts, each followed by the measurements.
local function handle(base, request)
  local since, ends, limit, list, prefix = unpack(request)
  local minutes = redis.call(
    'ZRANGEBYSCORE', base .. list, since, '(' .. text(ends), 'LIMIT', 0, limit
  )
  local found = {}
  for index, minute in ipairs(minutes) do
    found[index] = { tonumber(minute), redis.call('HGETALL', base .. prefix .. minute) }
  end
  return found
end
