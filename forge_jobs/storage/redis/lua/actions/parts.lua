-- no-writes
-- How far the actions have come in this queue: per action all fields and values in turn.
local function handle(base, ids)
  local found = {}
  for index, id in ipairs(ids) do
    found[index] = redis.call('HGETALL', base .. ':act:' .. id)
  end
  return found
end
