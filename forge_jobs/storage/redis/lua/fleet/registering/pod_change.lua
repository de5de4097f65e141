-- allow-oom
-- Changes what a pod says of itself, unless the lease has run out or is of another epoch. Answers what the
-- pod said before, '' where nothing was changed, and whether the pod drains.
-- uses: pods
local function handle(base, request)
  local host, epoch, doc, declared = unpack(request)
  local key = pod_key(base, host)
  local found, lease_until, before, draining =
    unpack(read_fields(key, 'epoch', 'lease_until', 'doc', 'draining'))
  if found ~= epoch or whole(lease_until, 0) <= now then
    return { '', false }
  end
  for _, name in ipairs(declared) do
    redis.call('SADD', base .. ':queues', name)
  end
  redis.call('HSET', key, 'doc', doc)
  wake('fleet')
  return { before or '', draining == '1' }
end
