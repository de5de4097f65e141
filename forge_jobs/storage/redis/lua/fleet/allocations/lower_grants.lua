-- allow-oom
-- A pod gives slots back: its grant becomes at most `most`.
-- uses: queues slots
local function handle(base, request)
  local host, epoch, most = unpack(request)
  local slot = load_slot(base, host)
  if slot and slot.epoch == epoch and slot.grant > most then
    slot.grant = most
    store_slot(base, host, slot)
    move_version(base)
    ring('fleet')
  end
end
