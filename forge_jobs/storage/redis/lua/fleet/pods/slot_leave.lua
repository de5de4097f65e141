-- allow-oom
-- Voids the slots of pods (host, epoch) here. A slot of another epoch stays until the lease has run out.
-- uses: queues slots
local function handle(base, request)
  for _, pod in ipairs(request) do
    local host, epoch = unpack(pod)
    local slot = load_slot(base, host)
    if slot and (slot.epoch == epoch or not is_live(slot)) then
      redis.call('HDEL', base .. ':slots', host)
      move_version(base)
      wake('fleet')
    end
  end
end
