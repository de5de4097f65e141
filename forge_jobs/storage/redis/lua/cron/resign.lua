-- allow-oom
-- Gives the leader lease up. Does nothing for another holder or term.
local function handle(base, request)
  local host, term = unpack(request)
  local key = base .. ':leader'
  local holder, stored, ends = unpack(redis.call('HMGET', key, 'host', 'term', 'until'))
  if holder == host and whole(stored) == term and whole(ends, 0) > now then
    redis.call('HSET', key, 'until', now)
    wake('fleet')
  end
end
