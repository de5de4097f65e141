-- no-writes
-- Records of these actions, or of those with lower ids, the highest first: id, time, document, age
-- in microseconds each. Those past their time are left out.
local function handle(base, request)
  local ids, below, most, kept = unpack(request)
  if most > 0 then
    local edge = below ~= '' and '(' .. below or '+'
    ids = redis.call('ZRANGE', base .. ':actions', edge, '-', 'BYLEX', 'REV', 'LIMIT', 0, most)
  end
  local found = {}
  for _, id in ipairs(ids) do
    local at, document = unpack(redis.call('HMGET', base .. ':action:' .. id, 'at', 'document'))
    local time = whole(at)
    local age = at and now - (time or now)
    if age and age < kept then
      found[#found + 1] = { id, time or false, document or '', age }
    end
  end
  return found
end
