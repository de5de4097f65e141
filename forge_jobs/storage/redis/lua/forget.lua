-- allow-oom
-- Takes away locators that still name this queue and are older than any attempt to store a job.
-- Requests { queue, ids } each.
-- uses: locators
local function handle(base, requests)
  for _, request in ipairs(requests) do
    local queue, ids = unpack(request)
    for _, id in ipairs(ids) do
      forget_locator(base .. ':ids', id, queue)
    end
  end
end
