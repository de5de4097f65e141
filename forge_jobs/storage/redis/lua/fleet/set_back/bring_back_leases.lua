-- allow-oom
-- Lets count from now what begins later than now, beyond a tolerance, because the clock has been set back.
-- Under the fleet's base { tolerance }: the leases of pods and of the leader. Under a queue's base {
-- tolerance, limit, longest, lengths }: at most `limit` beats of claims, slots by the lengths of their
-- pods' leases (host and length in turn), and a cool-down longer than the longest (-1: any). Answers how
-- many, whether more beats may be ahead, and whether the newest minute with a counter is ahead.
-- uses: pods slots
local function bring_pods(base, ahead)
  local changed = 0
  for _, host in ipairs(redis.call('ZRANGE', base .. ':pods', 0, 9999)) do
    local key = pod_key(base, host)
    local beat, ends = unpack(read_fields(key, 'beat', 'lease_until'))
    beat, ends = whole(beat, 0), whole(ends, 0)
    if beat > ahead then
      redis.call('HSET', key, 'beat', now, 'lease_until', now + ends - beat)
      redis.call('ZADD', base .. ':pods', now + ends - beat, host)
      changed = changed + 1
    end
  end
  return changed
end

local function bring_leader(base, ahead)
  local key = base .. ':leader'
  local renewed, ends = unpack(redis.call('HMGET', key, 'renewed', 'until'))
  if renewed and whole(renewed, 0) > ahead then
    redis.call('HSET', key, 'renewed', now, 'until', now + whole(ends, 0) - whole(renewed, 0))
    return 1
  end
  return 0
end

local function bring_slots(base, ahead, lengths)
  local slots, changed = load_slots(base), 0
  for index = 1, #lengths, 2 do
    local host, length = lengths[index], lengths[index + 1]
    local slot = slots[host]
    if slot and slot.lease_until > ahead + length then
      slot.lease_until = now + length
      store_slot(base, host, slot)
      changed = changed + 1
    end
  end
  return changed
end

local function bring_claims(base, ahead, limit)
  local ids = redis.call(
    'ZRANGE', base .. ':claimed', '(' .. text(ahead), '+inf', 'BYSCORE', 'LIMIT', 0, limit
  )
  for _, id in ipairs(ids) do
    redis.call('HSET', base .. ':j:' .. id, 'beat', now)
    redis.call('ZADD', base .. ':claimed', now, id)
  end
  return #ids
end

local function bring_cooldown(base, ahead, longest)
  local key = base .. ':queue'
  local ends = redis.call('HGET', key, 'cooldown_until')
  if longest >= 0 and ends and whole(ends, 0) > ahead + longest then
    redis.call('HSET', key, 'cooldown_until', now + longest)
  end
end

local function handle(base, request)
  local tolerance, limit, longest, lengths = unpack(request)
  local ahead = now + tolerance
  if not limit then
    return { bring_pods(base, ahead) + bring_leader(base, ahead), false, false }
  end
  bring_cooldown(base, ahead, longest)
  local slots, claims = bring_slots(base, ahead, lengths), bring_claims(base, ahead, limit)
  local newest = redis.call('ZRANGE', base .. ':minutes', -1, -1, 'WITHSCORES')[2]
  return { slots + claims, claims == limit, newest and tonumber(newest) > now or false }
end
