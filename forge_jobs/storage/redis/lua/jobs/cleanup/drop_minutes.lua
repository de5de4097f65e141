-- allow-oom
-- Drops the oldest minutes of at least an age, in the named list, with the keys they have under these
-- prefixes. Answers how many.
local function handle(base, request)
  local age, list, prefixes, limit = unpack(request)
  local minutes = redis.call(
    'ZRANGE', base .. list, '-inf', text(now - age), 'BYSCORE', 'LIMIT', 0, limit
  )
  for _, minute in ipairs(minutes) do
    for _, prefix in ipairs(prefixes) do
      redis.call('DEL', base .. prefix .. minute)
    end
    redis.call('ZREM', base .. list, minute)
    redis.call('ZREM', base .. ':unfolded', minute)
  end
  return #minutes
end
