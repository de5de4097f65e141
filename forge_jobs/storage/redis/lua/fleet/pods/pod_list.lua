-- no-writes
-- The time, all queues, and every pod, '' for what is not set, with its host last.
-- uses: pods
local FIELDS = { 'epoch', 'doc', 'started', 'beat', 'lease_until', 'draining', 'gauges', 'published' }

local function handle(base)
  local pods = {}
  for index, host in ipairs(redis.call('ZRANGE', base .. ':pods', 0, 9999)) do
    local pod = read_fields(pod_key(base, host), unpack(FIELDS))
    for field in ipairs(FIELDS) do
      pod[field] = pod[field] or ''
    end
    pod[#FIELDS + 1] = host
    pods[index] = pod
  end
  return { now, all_queues(base), pods }
end
