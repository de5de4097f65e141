-- allow-oom
-- Removes jobs for good.
-- uses: jobs letters endings lists edges handing linking passing ordering waited inheriting leaving removal places terms filters seen visits stepping
local function delete(base, job)
  if WAITING[job.status] then
    stop_waiting(base, job)
    free_key(base, job)
  end
  remove_job(base, job)
  return 'changed'
end

local function handle(base, request)
  return visit_step(base, request, delete, remove_remains)
end
