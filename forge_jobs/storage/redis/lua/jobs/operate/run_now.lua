-- allow-oom
-- Makes pending and failed jobs due now.
-- uses: jobs places terms filters seen visits stepping
local function run_now(base, job)
  if job.run_at > now then
    if job.hold == 'limit' or job.hold == 'struck' then
      leave_parked(base, job)
    end
    if not job.hold then
      remove_ready(base, job)
    end
    job.run_at = now
    redis.call('HSET', base .. ':j:' .. job.id, 'run_at', now)
    if not job.hold then
      add_ready(base, job)
    end
  end
  wake_queue(base)
  return 'changed'
end

local function handle(base, request)
  return visit_step(base, request, run_now)
end
