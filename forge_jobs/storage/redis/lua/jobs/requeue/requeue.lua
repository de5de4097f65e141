-- Gives failed, dead and cancelled jobs their whole budget again: due now, or blocked when they come after
-- jobs that have yet to end. request: as visit takes one, and per job with edges a plan, see relinking.lua.
-- A job whose edges are not those of the plan stays: 'again'.
-- uses: jobs letters endings edges places terms filters events seen visits stepping requeueing handing linking relinking passing ordering walking keeping returning
local plans

local function start_anew(base, job, edges)
  local key, open = base .. ':j:' .. job.id, relink_in_line(base, job, edges)
  leave(base, job)
  set_status(base, job, open > 0 and 'blocked' or 'pending')
  job.run_at, job.crashes = now, 0
  redis.call('HSET', key, 'status', job.status, 'cause', 'requeued', 'run_at', now, 'more', '1',
    'waits', open)
  redis.call('HDEL', key, 'attempt', 'crashes', 'snoozes', 'snoozed', 'cancel', 'finished', 'result',
    'result_expires', 'requested')
  if job.expires and job.expires <= now then
    -- The job would end again at once.
    redis.call('HDEL', key, 'expires')
    job.expires = nil
  end
  wait_again(base, job)
end

local function requeue(base, job)
  return refusal(base, job) or follow_plan(base, job, plans[job.id], start_anew, 'requeued')
end

local function handle(base, request)
  plans = request[VISIT.plans]
  return visit_step(base, request, requeue)
end
