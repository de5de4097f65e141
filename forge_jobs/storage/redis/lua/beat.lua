-- allow-oom
-- One queue's part of a beat: { host, epoch, lease_for, claims }. lease_for is 0 when the pod's own
-- lease is lost, false when only claims are asked about. A claim: { id, token, worker }, worker ''
-- while no handler runs. Answers whether the lease is held here, per claim 'held', 'cancel' or
-- 'lost', the pod's other claims (id, token), whether handovers wait, and of a queue that the pod
-- declares { { state, target, grant, time until the next job, -1 for none } }, else {}.
-- uses: jobs ready slots queues claims
local function beat_claim(base, host, one)
  local id, token, worker = unpack(one)
  local key = base .. ':j:' .. id
  local status, held, owner, cancel =
    unpack(redis.call('HMGET', key, 'status', 'token', 'host', 'cancel'))
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
      found[#found + 1] = { id, tonumber(redis.call('HGET', base .. ':j:' .. id, 'token')) }
    end
  end
  return found
end

local function tell(base, host, epoch, is_held)
  local slot = load_slot(base, host)
  if not slot or slot.epoch ~= epoch then
    return {}
  end
  local due = next_ready(base)
  return { {
    queue_state(base), is_held and slot.target or 0, is_held and slot.grant or 0, due or -1,
  } }
end

local function handle(base, request)
  local host, epoch, lease_for, claims = unpack(request)
  local is_held = lease_for and lease_for > 0 and renew_slot(base, host, epoch, lease_for)
  local answers, listed = {}, {}
  for index, one in ipairs(claims) do
    answers[index] = beat_claim(base, host, one)
    -- An earlier claim of the same job may be listed beside the one that holds it.
    listed[one[1]] = listed[one[1]] or answers[index] ~= 'lost'
  end
  return {
    is_held, answers, unlisted(base, host, listed),
    redis.call('EXISTS', base .. ':handovers') == 1,
    lease_for and tell(base, host, epoch, is_held) or {},
  }
end
