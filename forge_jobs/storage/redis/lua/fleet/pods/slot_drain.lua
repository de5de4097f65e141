-- allow-oom
-- Does what pod_drain says, in every queue that the pod declares.
-- uses: queues slots
local function handle(base, request)
  local host, epoch, drains = unpack(request)
  local slot = load_slot(base, host)
  if slot and slot.epoch == epoch and slot.draining ~= drains then
    slot.draining = drains
    store_slot(base, host, slot)
    move_version(base)
    wake('fleet')
  end
end
