-- allow-oom
-- Under the fleet's base: takes or renews the leader lease. Answers the lease, and the names of the queues.
-- Under a queue's base, with an empty request: answers the allocation.
-- uses: pods queues slots allocation
local function handle(base, request)
  if #request == 0 then
    return { allocation(base) }
  end
  local host, lease_for = unpack(request)
  local key = base .. ':leader'
  local holder, term, ends, renewed =
    unpack(redis.call('HMGET', key, 'host', 'term', 'until', 'renewed'))
  term, ends = whole(term, 0), whole(ends, 0)
  -- No lease is so long. The record has been spoilt.
  ends = ends - whole(renewed, 0) <= DAY and ends or 0
  if ends <= now or holder == host then
    term = ends <= now and term + 1 or term
    holder, ends = host, now + lease_for
    redis.call('HSET', key, 'host', holder, 'term', term, 'until', ends, 'renewed', now)
  end
  return { holder, term, ends - now, all_queues(base) }
end
