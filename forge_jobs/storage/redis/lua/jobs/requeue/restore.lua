-- Takes cancels back: jobs wait again as they did before. request: as visit takes one, and per job with
-- edges or children a plan, see relinking.lua. A job that is not as planned stays: 'again'.
-- uses: jobs letters endings edges places terms filters events seen visits stepping requeueing handing linking relinking passing ordering walking keeping returning
local plans

-- The time that the job waits for, also when the clock is set back. Of an enqueue that was due at once the
-- clock alone has made a time ahead. As text, because the time may be too far away for an exact number.
local function keep_time(key, job)
  local born = whole(redis.call('HGET', key, 'enqueued'), 0)
  if job.run_at > math.max(now, born) then
    redis.call('HSET', key, 'requested', redis.call('HGET', key, 'run_at'))
  end
end

local function go_on(base, job, edges)
  local key, open = base .. ':j:' .. job.id, relink_in_line(base, job, edges)
  leave(base, job)
  set_status(base, job, open > 0 and 'blocked' or 'pending')
  keep_time(key, job)
  redis.call('HSET', key, 'status', job.status, 'cause', 'restored', 'more', '1', 'waits', open)
  redis.call('HDEL', key, 'cancel', 'finished', 'result', 'result_expires')
  wait_again(base, job)
end

local function restore(base, job)
  return restore_refusal(base, job) or follow_plan(base, job, plans[job.id], go_on, 'restored')
end

local function handle(base, request)
  plans = request[VISIT.plans]
  return visit_step(base, request, restore)
end
