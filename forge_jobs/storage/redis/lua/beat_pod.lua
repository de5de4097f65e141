-- allow-oom
-- Renews the pod's own lease, before its queues do; answers whether it is held, and what the pod
-- says of itself, '' for one of another epoch.
-- uses: pods
local function handle(base, request)
  local host, epoch, lease_for = unpack(request)
  local is_held = renew_pod(base, host, epoch, lease_for)
  local doc = is_of(base, host, epoch) and redis.call('HGET', pod_key(base, host), 'doc')
  return { is_held, doc or '' }
end
