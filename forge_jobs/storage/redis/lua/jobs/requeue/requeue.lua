-- Gives failed, dead and cancelled jobs their whole budget again: due now, or blocked when they come after
-- jobs that have yet to end. request: as visit takes one, and per job with edges a plan: { refusal or
-- false, { { parent, edge, the edge from now on } .. } }. A job whose edges are not those of the plan
-- stays: 'again'.
-- uses: jobs letters endings edges places terms filters events seen visits stepping requeueing handing
local plans

-- Returns why the job is not requeued by the plan, and the edges of the plan. 'again': the job is not as
-- planned. false: no reason.
local function plan_of(base, job)
  local waits, plan = base .. ':waits:' .. job.id, plans[job.id] or { false, {} }
  local why, edges = unpack(plan)
  if read_record('HLEN', waits) ~= #edges then
    return read_record('HLEN', waits) and 'again' or 'silent'
  end
  for _, edge in ipairs(edges) do
    local parent, expected = unpack(edge)
    if redis.call('HGET', waits, parent) ~= expected then
      return 'again'
    end
  end
  return why, edges
end

-- Writes the edges. Returns how many have not settled.
local function relink(base, job, edges)
  local open = 0
  for _, edge in ipairs(edges) do
    local parent, _, after = unpack(edge)
    redis.call('HSET', base .. ':waits:' .. job.id, parent, after)
    open = open + (parse_edge(after) ~= 'settled' and 1 or 0)
  end
  return open
end

local function start_anew(base, job, edges)
  local key, open = base .. ':j:' .. job.id, relink(base, job, edges)
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
  if job.key then
    redis.call('HSET', base .. ':unique', job.key, job.id)
  end
  start_waiting(base, job)
end

local function requeue(base, job)
  local refused = refusal(base, job) or is_key_taken(base, job) and 'key_taken'
  if refused then
    return refused
  end
  local why, edges = plan_of(base, job)
  if why then
    return why
  end
  start_anew(base, job, edges)
  if job.kids then
    withdraw_handovers(base, job.id)
  end
  append_event(base, now, 'requeued', job.id, '', '')
  count('requeued')
  return 'changed'
end

local function handle(base, request)
  plans = request[VISIT.plans]
  return visit_step(base, request, requeue)
end
