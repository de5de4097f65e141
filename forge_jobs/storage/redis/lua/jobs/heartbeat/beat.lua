-- allow-oom
-- Takes a pod's beat. Under the fleet's base { host, epoch, lease_for, false, lives }: renews the pod's own
-- lease. With `lives` also one that ran out, as queues still hold the lease. Answers whether the lease is
-- held, what the pod says of itself ('' for one of another epoch), the time, and whether a request waits.
-- Under a queue's base { host, epoch, lease_for, claims, earlier }. lease_for is 0 when the pod's own lease
-- is lost, or was found lost by the fleet's part of the same step. lease_for is false when only claims are
-- asked about. A claim: { id, token, worker }, worker '' while no handler runs. earlier: jobs of claims that
-- a step before has found held, false in that step. Answers whether the lease is held here, per claim
-- 'held', 'cancel' or 'lost', the pod's other claims (id, token), whether handovers wait, and letters. Then,
-- of a queue that the pod declares { { state, target, grant, time until the next job, -1 for none } }, else
-- {}.
-- uses: jobs ready slots queues claims pods
local is_pod_held = true

local function beat_claim(base, host, one)
  local id, token, worker = unpack(one)
  local key = base .. ':j:' .. id
  local status, held, owner, cancel =
    unpack(read_fields(key, 'status', 'token', 'host', 'cancel'))
  if status ~= 'in_progress' or tonumber(held) ~= token or owner ~= host then
    return 'lost'
  end
  redis.call('HSET', key, 'beat', now)
  redis.call('ZADD', base .. ':claimed', now, id)
  if worker ~= '' then
    redis.call('HSET', key, 'worker', worker)
    mark_started(base, id)
  end
  return cancel and 'cancel' or 'held'
end

local function unlisted(base, host, listed)
  local found = {}
  for _, id in ipairs(redis.call('SMEMBERS', base .. ':own:' .. host)) do
    if not listed[id] then
      found[#found + 1] = { id, whole(read_fields(base .. ':j:' .. id, 'token')[1], 0) }
    end
  end
  return found
end

local function tell(base, slot, is_held, due)
  return { {
    queue_state(base), is_held and slot.target or 0, is_held and slot.grant or 0, due or -1,
  } }
end

local function beat_queue(base, host, epoch, lease_for, claims, earlier)
  local slot = lease_for and load_slot(base, host)
  local renews = lease_for and lease_for > 0 and is_pod_held
  local is_held = renews and renew_slot(base, host, slot, epoch, lease_for) or false
  local answers, listed = {}, {}
  for index, one in ipairs(claims) do
    answers[index] = beat_claim(base, host, one)
    -- An earlier claim of the same job may be listed beside the one that holds the job.
    listed[one[1]] = listed[one[1]] or answers[index] ~= 'lost'
  end
  for _, id in ipairs(earlier or {}) do listed[id] = true end
  local others, handovers, letters, due = {}, false, false, nil
  -- An idle queue has none of them.
  local looked_at = { base .. ':own:' .. host, base .. ':handovers', base .. ':letters', base .. ':lines' }
  if earlier and redis.call('EXISTS', unpack(looked_at)) > 0 then
    others = unlisted(base, host, listed)
    handovers = redis.call('EXISTS', base .. ':handovers') == 1
    letters = redis.call('EXISTS', base .. ':letters') == 1
    due = earliest_in_lines(base)
  end
  local is_declared = slot and slot.epoch == epoch
  return { is_held, answers, others, handovers, letters, is_declared and tell(base, slot, is_held, due) or {} }
end

local function handle(base, request)
  local host, epoch, lease_for, claims, more = unpack(request)
  if claims then
    return beat_queue(base, host, epoch, lease_for, claims, more)
  end
  local doc, is_asked
  is_pod_held, doc, is_asked = renew_pod(base, host, epoch, lease_for, more)
  return { is_pod_held, doc, now, is_asked }
end
