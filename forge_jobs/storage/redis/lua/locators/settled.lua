-- no-writes
-- { name of the hash, groups { queue, ids } }. Answers { the ids whose locators name the queue and are not
-- new, with these }, an empty list when the locators are elsewhere by now.
-- uses: locators
local function handle(base, asked)
  local name, groups = unpack(asked)
  local ids_of, found = base .. ':' .. name, {}
  for _, group in ipairs(groups) do
    local queue, ids = unpack(group)
    for _, id in ipairs(ids) do
      local locator = settled_locator(ids_of, id, queue)
      if locator == nil then
        return {}
      elseif locator then
        found[#found + 1] = { queue, id, locator }
      end
    end
  end
  return { found }
end
