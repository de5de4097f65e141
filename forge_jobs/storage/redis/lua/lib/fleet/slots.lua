-- A pod's slot: the lease, target and grant in one queue that the pod declares.
--
-- Hash 'slots': pod -> msgpack of { epoch, lease_until, target, grant, draining }.

local SLOT = { 'string', 'number', 'number', 'number', 'boolean' }

-- A slot that cannot be read is void: the pod registers again.
local VOID = { '', 0, 0, 0, false }

local function unpack_slot(packed)
  local epoch, lease_until, target, grant, draining = unpack(unpacked(packed, SLOT) or VOID)
  return {
    epoch = epoch, lease_until = lease_until, target = math.max(0, target),
    grant = math.max(0, grant), draining = draining,
  }
end

-- nil when there is none
local function load_slot(base, host)
  local packed = redis.call('HGET', base .. ':slots', host)
  return packed and unpack_slot(packed) or nil
end

local function load_slots(base)
  local flat = redis.call('HGETALL', base .. ':slots')
  local slots = {}
  for index = 1, #flat, 2 do
    slots[flat[index]] = unpack_slot(flat[index + 1])
  end
  return slots
end

local function store_slot(base, host, slot)
  redis.call('HSET', base .. ':slots', host, cmsgpack.pack({
    slot.epoch, slot.lease_until, slot.target, slot.grant, slot.draining,
  }))
end

local function is_live(slot, epoch)
  return slot ~= nil and slot.lease_until > now and (epoch == nil or slot.epoch == epoch)
end

-- Renews the lease of a pod here. Returns false when the lease ran out or is of another epoch.
local function renew_slot(base, host, slot, epoch, lease_for)
  if not is_live(slot, epoch) then
    return false
  end
  slot.lease_until = now + lease_for
  store_slot(base, host, slot)
  return true
end

-- Returns whether a pod may claim from the queue now, and whether the queue has limits with a share.
local function is_open(base, host, epoch)
  local paused, cooldown_until, waits, workers, shared = unpack(redis.call(
    'HMGET', base .. ':queue', 'paused', 'cooldown_until', 'waits', 'max_workers', 'shared'
  ))
  if workers then
    waits_of[base] = waits
  end
  return not paused
    and (not cooldown_until or whole(cooldown_until, 0) <= now)
    and is_live(load_slot(base, host), epoch), shared
end
