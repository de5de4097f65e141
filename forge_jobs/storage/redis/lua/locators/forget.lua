-- allow-oom
-- Takes away locators that still name this queue and are not new. { name of the hash, groups { queue, ids }
-- }. Answers { { how many } }, an empty list when the locators are elsewhere by now.
-- uses: locators
local function handle(base, asked)
  local name, groups = unpack(asked)
  local ids_of, forgotten = base .. ':' .. name, 0
  for _, group in ipairs(groups) do
    local queue, ids = unpack(group)
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
