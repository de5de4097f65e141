-- allow-oom
-- Cancels waiting jobs, and asks the owners of running ones.
-- uses: jobs letters endings cancels places terms filters events seen visits stepping
local function cancel(base, job)
  if job.status == 'in_progress' then
    redis.call('HSET', base .. ':j:' .. job.id, 'cancel', '1', 'more', '1')
    append_event(base, now, 'cancel_requested', job.id, '', '')
    wake('beat')
    return 'requested'
  end
  cancel_waiting(base, job, 'cancelled')
  return 'changed'
end

local function handle(base, request)
  return visit_step(base, request, cancel)
end
