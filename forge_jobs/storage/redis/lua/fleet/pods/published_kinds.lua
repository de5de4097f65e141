-- no-writes
-- Kinds and what pods have said of them, in turn: all, or those of the names. See publish_kinds.
local function handle(base, request)
  local names = unpack(request)
  local key = base .. ':kinds'
  if not names then
    return redis.call('HGETALL', key)
  end
  local found = {}
  for _, name in ipairs(names) do
    local known = redis.call('HGET', key, name)
    if known then
      found[#found + 1] = name
      found[#found + 1] = known
    end
  end
  return found
end
