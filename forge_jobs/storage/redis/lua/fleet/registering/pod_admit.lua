-- allow-oom
-- The second step of a registration, in every queue, and of a change, in those that are new to the pod. Writes
-- an empty slot where the pod declares the queue (defaults: the record of a new one), and removes the slot
-- elsewhere. Answers whether jobs are on hold here. A caller that looked at the kinds before this step may put
-- no more jobs of those kinds on hold.
-- uses: queues slots
local function handle(base, request)
  local host, epoch, lease_for, drains, defaults = unpack(request)
  if defaults then
    ensure_queue(base, defaults)
    store_slot(base, host, {
      epoch = epoch, lease_until = now + lease_for, target = 0, grant = 0, draining = drains,
    })
    move_version(base)
    wake('fleet')
  elseif redis.call('HDEL', base .. ':slots', host) == 1 then
    move_version(base)
    wake('fleet')
  end
  if redis.call('HEXISTS', base .. ':queue', 'max_workers') == 1 then
    add_up(base .. ':queue', 'kinds_version', 1)
  end
  return redis.call('EXISTS', base .. ':held') == 1
end
