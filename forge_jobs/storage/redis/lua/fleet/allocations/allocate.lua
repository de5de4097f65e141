-- allow-oom
-- Writes targets and raises grants: per change (version, slots as host, target, grant) whether the change
-- was taken. Everything that the decision needs is in this queue's slot, so the sum of grants holds at
-- every instant.
-- uses: queues slots allocation
local function is_allowed(stored, wished, max_workers)
  local sum, rises = 0, false
  for _, slot in pairs(stored) do
    sum = sum + slot.grant
  end
  for _, wish in ipairs(wished) do
    local host, _, grant = unpack(wish)
    local slot = stored[host]
    if not slot or grant < slot.grant then
      return false
    end
    rises = rises or grant > slot.grant
    sum = sum + grant - slot.grant
  end
  return not rises or sum <= max_workers
end

local function write(base, stored, wished)
  local any = false
  for _, wish in ipairs(wished) do
    local host, target, grant = unpack(wish)
    local slot = stored[host]
    if slot.target ~= target or slot.grant ~= grant then
      slot.target, slot.grant = target, grant
      store_slot(base, host, slot)
      any = true
    end
  end
  return any
end

local function allocate(base, change)
  local version, wished = unpack(change)
  local current, max_workers =
    unpack(redis.call('HMGET', base .. ':queue', 'version', 'max_workers'))
  if not max_workers or whole(current, 0) ~= version then
    return false
  end
  local stored, void = live_slots(base)
  if not is_allowed(stored, wished, most_workers(max_workers)) then
    return false
  end
  if write(base, stored, wished) then
    for _, host in ipairs(void) do
      redis.call('HDEL', base .. ':slots', host)
    end
    move_version(base)
    wake('beat')
  end
  return true
end

local function handle(base, changes)
  local answers = {}
  for index, change in ipairs(changes) do
    answers[index] = allocate(base, change)
  end
  return answers
end
