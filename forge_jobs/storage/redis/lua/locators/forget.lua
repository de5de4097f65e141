-- allow-oom
-- Takes away locators that still name this queue and are not new. { name of the hash, requests
-- { queue, ids } each }; answers { { how many } }, an empty list when they are
-- elsewhere by now.
-- uses: locators
local function handle(base, asked)
  local ids_of, forgotten = base .. ':' .. asked[1], 0
  for _, request in ipairs(asked[2]) do
    local queue, ids = unpack(request)
    for _, id in ipairs(ids) do
      local locator = settled_locator(ids_of, id, queue)
      if locator == nil then
        return {}
      elseif locator then
        forgotten = forgotten + redis.call('HDEL', ids_of, id)
      end
    end
  end
  return { { forgotten } }
end
