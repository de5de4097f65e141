-- no-writes
-- The ids whose jobs are in this queue.
local function handle(base, ids)
  local found = {}
  for _, id in ipairs(ids) do
    if redis.call('EXISTS', base .. ':j:' .. id) == 1 then
      found[#found + 1] = id
    end
    spend(1)
  end
  return found
end
