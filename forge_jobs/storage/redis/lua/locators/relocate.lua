-- allow-oom
-- Writes the locators of jobs that have none: { id, queue } each. Answers { those that had none },
-- an empty list when they are elsewhere by now.
-- uses: locators
local function handle(base, jobs)
  local written = {}
  for _, job in ipairs(jobs) do
    local id, queue = unpack(job)
    local set = try('HSETNX', base .. ':ids', id, locator_of(queue, now))
    if not set then
      return {}
    elseif set == 1 then
      written[#written + 1] = id
    end
  end
  return { written }
end
