-- no-writes
-- Per pod that declares the queue its host, epoch, target and grant, both zero when its lease has
-- run out; and the pods with claims here, each followed by how many.
-- uses: slots
local function handle(base)
  local slots, stored = {}, load_slots(base)
  for host, slot in pairs(stored) do
    local live = is_live(slot)
    slots[#slots + 1] = { host, slot.epoch, live and slot.target or 0, live and slot.grant or 0 }
  end
  spend(2 + #slots)
  return { slots, redis.call('HGETALL', base .. ':owners') }
end
