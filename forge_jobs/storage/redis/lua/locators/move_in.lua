-- Copies locators { id, locator }, but for those that have one here, which is newer. The ids of these.
local function handle(base, pairs_of)
  local there = {}
  for _, pair in ipairs(pairs_of) do
    if redis.call('HSETNX', base .. ':ids', pair[1], pair[2]) == 0 then
      there[#there + 1] = pair[1]
    end
  end
  return there
end
