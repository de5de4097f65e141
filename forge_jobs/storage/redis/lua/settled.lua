-- no-writes
-- Of requests { queue, ids } the ids whose locators name the queue and are not new, with these.
-- uses: locators
local function handle(base, requests)
  local found = {}
  for _, request in ipairs(requests) do
    local queue, ids = unpack(request)
    for _, id in ipairs(ids) do
      local locator = settled_locator(base .. ':ids', id, queue)
      if locator then
        found[#found + 1] = { queue, id, locator }
      end
    end
  end
  return found
end
