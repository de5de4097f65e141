-- The allocation of a queue. Used with slots.lua.

-- The slots of pods with a live lease, by host, and the hosts of the others.
local function live_slots(base)
  local live, void = {}, {}
  for host, slot in pairs(load_slots(base)) do
    if is_live(slot) then
      live[host] = slot
    else
      void[#void + 1] = host
    end
  end
  return live, void
end

-- Returns version, max_workers, whether jobs wait, and per live pod host, target, grant and whether the pod
-- drains. nil when there is no such queue.
local function allocation(base)
  local version, max_workers =
    unpack(redis.call('HMGET', base .. ':queue', 'version', 'max_workers'))
  if not max_workers then
    return nil
  end
  local pods = {}
  for host, slot in pairs((live_slots(base))) do
    pods[#pods + 1] = { host, slot.target, slot.grant, slot.draining }
  end
  local waiting = redis.call(
    'EXISTS', base .. ':s:blocked', base .. ':s:pending', base .. ':s:failed'
  )
  return { whole(version, 0), most_workers(max_workers), waiting > 0, pods }
end
