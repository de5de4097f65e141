-- allow-oom
-- Removes jobs that ended at the named time, at least a minute ago. Answers how many.
-- uses: jobs letters endings lists edges handing linking passing ordering waited inheriting leaving removal
local function handle(base, jobs)
  local removed = 0
  for _, each in ipairs(jobs) do
    local ended, id = unpack(each)
    local job = load(base, id)
    if job and job.finished == ended and ENDED[job.status] and ended + 60 * 1000000 <= now then
      remove_job(base, job)
      removed = removed + 1
    end
  end
  return removed
end
