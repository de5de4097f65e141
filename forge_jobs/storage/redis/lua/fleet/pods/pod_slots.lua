-- no-writes
-- Answers per pod that declares the queue host, epoch, target and grant, the last two zero when the lease
-- has run out. Then the pods with claims here, each followed by how many.
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
