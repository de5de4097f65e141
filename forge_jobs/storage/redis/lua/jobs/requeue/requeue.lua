-- Gives failed, dead and cancelled jobs their whole budget again: due now, or blocked when they come
-- after jobs that have yet to end. request: as visit takes it, and per job with edges its plan:
-- { refusal or false, { { parent, edge, the edge from now on } .. } }. A job whose edges are not
-- those of its plan is left as it is: 'again'.
-- uses: jobs letters endings edges places filters events visits requeueing news
local plans

-- The plan for a job, nil when there is none for how it is now.
local function plan_of(base, job)
  local waits, plan = base .. ':waits:' .. job.id, plans[job.id] or { false, {} }
  if read_record('HLEN', waits) ~= #plan[2] then
    return not read_record('HLEN', waits) and { 'silent', {} } or nil
  end
  for _, edge in ipairs(plan[2]) do
    if redis.call('HGET', waits, edge[1]) ~= edge[2] then
      return nil
    end
  end
  return plan
end

-- Writes the edges; answers how many have not settled.
local function relink(base, job, edges)
  local open = 0
  for _, edge in ipairs(edges) do
    redis.call('HSET', base .. ':waits:' .. job.id, edge[1], edge[3])
    open = open + (parse_edge(edge[3]) ~= 'settled' and 1 or 0)
  end
  return open
end

local function leave(base, job)
  if WAITING[job.status] then
    stop_waiting(base, job)
  else
    redis.call('ZREM', base .. ':ended:' .. job.status, job.id)
  end
  redis.call('ZREM', base .. ':results', job.id)
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
    -- It would end it again at once.
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
  local plan = not refused and plan_of(base, job)
  if refused or not plan or plan[1] then
    return refused or not plan and 'again' or plan[1]
  end
  start_anew(base, job, plan[2])
  if job.kids then
    withdraw_news(base, job.id)
  end
  append_event(base, now, 'requeued', job.id, '', '')
  count('requeued')
  return 'changed'
end

local function handle(base, request)
  plans = request[4]
  return visit(base, request, requeue)
end
