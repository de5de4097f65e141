-- allow-oom
-- Lowers the grant of a pod, which gives slots back, to at most `most`.
-- uses: queues slots
local function handle(base, request)
  local host, epoch, most = unpack(request)
  local slot = load_slot(base, host)
  if slot and slot.epoch == epoch and slot.grant > most then
    slot.grant = most
    store_slot(base, host, slot)
    move_version(base)
    wake('fleet')
  end
end
