-- allow-oom
-- The first jobs whose locators are not written yet. Those that are gone are forgotten.
local function handle(base, most)
  local found = {}
  for _, id in ipairs(redis.call('ZRANGE', base .. ':unlocated', 0, most - 1)) do
    if redis.call('EXISTS', base .. ':j:' .. id) == 1 then
      found[#found + 1] = id
    else
      redis.call('ZREM', base .. ':unlocated', id)
    end
  end
  return found
end
