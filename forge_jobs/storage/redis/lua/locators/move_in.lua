-- Copies locators { id, locator }, but for those that have one here, which is newer. The ids of these.
local function handle(base, pairs_of)
  local there = {}
  for _, pair in ipairs(pairs_of) do
    local id, locator = unpack(pair)
    if redis.call('HSETNX', base .. ':ids', id, locator) == 0 then
      there[#there + 1] = id
    end
  end
  return there
end
