-- allow-oom
-- The pod takes no new work. Answers all queues, none for another epoch.
-- uses: pods
local function handle(base, request)
  local host, epoch = unpack(request)
  if not is_of(base, host, epoch) then
    return {}
  end
  redis.call('HSET', pod_key(base, host), 'draining', '1')
  return all_queues(base)
end
