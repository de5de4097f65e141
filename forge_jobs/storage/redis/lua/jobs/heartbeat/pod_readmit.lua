-- allow-oom
-- Admits a pod whose lease ran out here, while the pod's own lease was renewed with the fleet: { host,
-- epoch, lease_for }. The pod comes without slots, as in pod_admit, and drains if the pod did. Answers
-- whether there is such a queue, and whether jobs are on hold here.
-- uses: queues slots
local function handle(base, request)
  local host, epoch, lease_for = unpack(request)
  if not has_queue(base) then
    return { false, false }
  end
  local before = load_slot(base, host)
  local drains = before and before.epoch == epoch and before.draining or false
  store_slot(base, host, {
    epoch = epoch, lease_until = now + lease_for, target = 0, grant = 0, draining = drains,
  })
  move_version(base)
  wake('fleet')
  redis.call('HINCRBY', base .. ':queue', 'kinds_version', 1)
  return { true, redis.call('EXISTS', base .. ':held') == 1 }
end
