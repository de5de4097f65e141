-- no-writes
-- Per pod that declares the queue its host, epoch, target and grant, both zero when its lease has
-- run out; and the pods with claims here, each followed by how many.
-- uses: slots
local function handle(base)
  local slots = {}
  for host, slot in pairs(load_slots(base)) do
    local live = is_live(slot)
    slots[#slots + 1] = { host, slot.epoch, live and slot.target or 0, live and slot.grant or 0 }
  end
  return { slots, redis.call('HGETALL', base .. ':owners') }
end
