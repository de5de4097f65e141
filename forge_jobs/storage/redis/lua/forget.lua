-- allow-oom
-- Takes away locators that still name this queue and are not new. Requests { queue, ids } each; answers
-- { how many }.
-- uses: locators
local function handle(base, requests)
  local forgotten = 0
  for _, request in ipairs(requests) do
    local queue, ids = unpack(request)
    for _, id in ipairs(ids) do
      if settled_locator(base .. ':ids', id, queue) then
        forgotten = forgotten + redis.call('HDEL', base .. ':ids', id)
      end
    end
  end
  return { forgotten }
end
