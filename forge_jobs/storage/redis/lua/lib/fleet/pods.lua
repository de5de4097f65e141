-- The fleet's own records of pods. Every queue that a pod declares has a copy of the lease, which gates
-- claims and grants there. See queues.lua.
--
-- Hash 'pod:<host>': epoch, doc (what the pod says of itself, JSON, opaque here), started, beat, published
-- (JSON, kind -> queue or null), lease_until, draining ('1'), quiet ('1'), gauges (JSON), gauges_minute,
-- asked (until when a request to the pod waits). Zset 'pods':
-- pods by lease_until. Set 'queues': the names of all queues.

local function pod_key(base, host)
  return base .. ':pod:' .. host
end

-- Returns whether the pod has the lease of this epoch, run out or not.
local function is_of(base, host, epoch)
  return (read_record('HGET', pod_key(base, host), 'epoch') or '') == epoch
end

-- Renews the lease of a pod. Returns whether the lease is held (not when run out, or of another epoch), and
-- what the pod says of itself, '' for one of another epoch, and whether a request to the pod waits.
local function renew_pod(base, host, epoch, lease_for, lives)
  local key = pod_key(base, host)
  local found, lease_until, doc, asked =
    unpack(read_fields(key, 'epoch', 'lease_until', 'doc', 'asked'))
  if found ~= epoch then
    return false, '', false
  elseif whole(lease_until, 0) <= now and not lives then
    return false, doc, false
  end
  redis.call('HSET', key, 'beat', now, 'lease_until', now + lease_for)
  redis.call('ZADD', base .. ':pods', now + lease_for, host)
  return true, doc, whole(asked, 0) > now
end

-- So many pods one step looks at: what each says of itself is long.
local PODS_AT_ONCE = 40

-- The first hosts of a list, and those that are left for further steps.
local function part_of_pods(hosts)
  local first, rest = {}, {}
  for index, host in ipairs(hosts) do
    local part = index <= PODS_AT_ONCE and first or rest
    part[#part + 1] = host
  end
  return first, rest
end

local function all_queues(base)
  return redis.call('SMEMBERS', base .. ':queues')
end
