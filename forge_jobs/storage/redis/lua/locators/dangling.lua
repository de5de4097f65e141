-- no-writes
-- The ids of jobs that are not there, and that were not removed either.
local function handle(base, ids)
  local found = {}
  for _, id in ipairs(ids) do
    if redis.call('EXISTS', base .. ':j:' .. id) == 0 and not redis.call('ZSCORE', base .. ':gone', id) then
      found[#found + 1] = id
    end
  end
  return found
end
