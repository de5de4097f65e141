-- allow-oom
-- The first step of a registration, after which the fleet knows the pod and the kinds. Answers all queues.
-- uses: pods
local function handle(base, request)
  local host, epoch, doc, published, lease_for, declared = unpack(request)
  for _, name in ipairs(declared) do
    redis.call('SADD', base .. ':queues', name)
  end
  local key = pod_key(base, host)
  if read_record('HSETNX', key, 'started', now) == nil then
    redis.call('DEL', key)
    redis.call('HSET', key, 'started', now)
  end
  redis.call(
    'HSET', key, 'epoch', epoch, 'doc', doc, 'published', published, 'beat', now,
    'lease_until', now + lease_for
  )
  redis.call('HDEL', key, 'draining', 'quiet', 'asked')
  redis.call('ZADD', base .. ':pods', now + lease_for, host)
  wake('fleet')
  return all_queues(base)
end
