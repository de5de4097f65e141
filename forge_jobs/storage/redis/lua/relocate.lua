-- allow-oom
-- Writes the locators of jobs that have none: { id, queue } each. Answers those that had none.
-- uses: locators
local function handle(base, jobs)
  local written = {}
  for _, job in ipairs(jobs) do
    local id, queue = unpack(job)
    if redis.call('HSETNX', base .. ':ids', id, locator_of(queue, now)) == 1 then
      written[#written + 1] = id
    end
  end
  return written
end
