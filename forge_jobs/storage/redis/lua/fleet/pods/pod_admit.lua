-- allow-oom
-- The second step of a registration, in every queue: the pod's slot, empty, where it declares the
-- queue (defaults: the record of a new one), and none where it does not. Answers whether jobs are
-- on hold here: whoever looked at the kinds before this step may put no more of them on hold.
-- uses: queues slots
local function handle(base, request)
  local host, epoch, lease_for, defaults = unpack(request)
  if defaults then
    ensure_queue(base, defaults)
    store_slot(base, host, {
      epoch = epoch, lease_until = now + lease_for, target = 0, grant = 0, draining = false,
    })
    move_version(base)
    ring('fleet')
  elseif redis.call('HDEL', base .. ':slots', host) == 1 then
    move_version(base)
    ring('fleet')
  end
  if redis.call('HEXISTS', base .. ':queue', 'max_workers') == 1 then
    add_up(base .. ':queue', 'kinds_version', 1)
  end
  return redis.call('EXISTS', base .. ':held') == 1
end
