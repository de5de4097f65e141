-- no-writes
-- At most `limit` minutes, or hours, from `since` on, before `ends`: per minute its time and its hosts, each
-- followed by what it measured.
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
