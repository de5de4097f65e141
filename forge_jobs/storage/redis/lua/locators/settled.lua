-- no-writes
-- { name of the hash, requests { queue, ids } each }: answers { the ids whose locators name the queue
-- and are not new, with these }, an empty list when the locators are elsewhere by now.
-- uses: locators
local function handle(base, asked)
  local ids_of, found = base .. ':' .. asked[1], {}
  for _, request in ipairs(asked[2]) do
    local queue, ids = unpack(request)
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
