-- no-writes
-- The time, all queues, pods ('' for what is not set, with the host last), and the hosts of those that
-- are left for a further step. That one names them, and gets no queues.
-- uses: pods
local FIELDS = { 'epoch', 'doc', 'started', 'beat', 'lease_until', 'draining', 'gauges', 'published', 'quiet' }

local function handle(base, named)
  local is_first, pods = #named == 0, {}
  local hosts, rest = part_of_pods(is_first and redis.call('ZRANGE', base .. ':pods', 0, 9999) or named)
  for _, host in ipairs(hosts) do
    local pod = read_fields(pod_key(base, host), unpack(FIELDS))
    -- A pod of a further step may have gone.
    if is_first or pod[1] ~= false then
      for field in ipairs(FIELDS) do
        pod[field] = pod[field] or ''
      end
      pod[#FIELDS + 1] = host
      pods[#pods + 1] = pod
    end
  end
  return { now, is_first and all_queues(base) or {}, pods, rest }
end
