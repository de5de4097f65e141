-- Gives failed, dead and cancelled jobs their whole budget again, due now.
-- uses: jobs endings filters events visits
local REFUSED = {
  done = 'finished', in_progress = 'running', pending = 'waiting', blocked = 'waiting',
}

local function refusal(base, job)
  if REFUSED[job.status] then
    return REFUSED[job.status]
  end
  -- What it was to do is no longer stored.
  if redis.call('HSTRLEN', base .. ':j:' .. job.id, 'payload') == 0 then
    return 'finished'
  end
  local holder = job.key and redis.call('HGET', base .. ':unique', job.key)
  return holder and holder ~= job.id and 'key_taken'
end

local function leave(base, job)
  if job.status == 'failed' then
    stop_waiting(base, job)
  else
    redis.call('ZREM', base .. ':ended:' .. job.status, job.id)
  end
  redis.call('ZREM', base .. ':results', job.id)
end

local function requeue(base, job)
  local refused = refusal(base, job)
  if refused then
    return refused
  end
  local key = base .. ':j:' .. job.id
  leave(base, job)
  set_status(base, job, 'pending')
  job.run_at, job.crashes = now, 0
  redis.call('HSET', key, 'status', 'pending', 'cause', 'requeued', 'run_at', now, 'more', '1')
  redis.call('HDEL', key, 'attempt', 'crashes', 'snoozes', 'snoozed', 'cancel', 'finished', 'result',
    'result_expires')
  if job.expires and job.expires <= now then
    -- It would end it again at once.
    redis.call('HDEL', key, 'expires')
    job.expires = nil
  end
  if job.key then
    redis.call('HSET', base .. ':unique', job.key, job.id)
  end
  start_waiting(base, job)
  append_event(base, now, 'requeued', job.id, '', '')
  count('requeued')
  return 'changed'
end

local function handle(base, request)
  return visit(base, request, requeue)
end
