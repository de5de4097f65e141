-- allow-oom
-- The pod takes no new work (drains, quiet: by request), or takes work again. Answers all queues, none for
-- another epoch.
-- uses: pods
local function handle(base, request)
  local host, epoch, drains, quiet = unpack(request)
  if not is_of(base, host, epoch) then
    return {}
  end
  for field, is_set in pairs({ draining = drains, quiet = drains and quiet }) do
    if is_set then
      redis.call('HSET', pod_key(base, host), field, '1')
    else
      redis.call('HDEL', pod_key(base, host), field)
    end
  end
  return all_queues(base)
end
