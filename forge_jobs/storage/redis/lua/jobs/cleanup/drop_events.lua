-- allow-oom
-- Drops the oldest events, from their jobs' lists too: those of at least an age, and those beyond the most
-- that stay. Answers how many.
-- uses: events
local function handle(base, request)
  local age, most, limit = unpack(request)
  local key = base .. ':events'
  local old = redis.call('ZCOUNT', key, '-inf', text(now - age))
  local number = math.min(limit, math.max(old, redis.call('ZCARD', key) - most))
  if number <= 0 then
    return 0
  end
  local found = redis.call('ZRANGE', key, 0, number - 1, 'WITHSCORES')
  for index = 1, #found, 2 do
    local member, at = found[index], tonumber(found[index + 1])
    local id = unpack_event(at, member)[4]
    if id ~= '' then
      redis.call('LREM', base .. ':ev:' .. id, 1, named_event(at, member))
    end
    redis.call('ZREM', key, member)
  end
  return number
end
