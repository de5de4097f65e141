-- allow-oom
-- Gives the leader lease up; nothing for another holder or term.
local function handle(base, request)
  local host, term = unpack(request)
  local key = base .. ':leader'
  local holder, stored, ends = unpack(redis.call('HMGET', key, 'host', 'term', 'until'))
  if holder == host and tonumber(stored) == term and tonumber(ends) > now then
    redis.call('HSET', key, 'until', now)
    ring('fleet')
  end
end
