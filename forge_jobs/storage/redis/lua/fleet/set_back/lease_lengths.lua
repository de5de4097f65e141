-- no-writes
-- All queues, and how long the lease of each pod is: host and microseconds in turn.
-- uses: pods
local function handle(base)
  local lengths = {}
  for _, host in ipairs(redis.call('ZRANGE', base .. ':pods', 0, 9999)) do
    local beat, ends = unpack(read_fields(pod_key(base, host), 'beat', 'lease_until'))
    lengths[#lengths + 1], lengths[#lengths + 2] = host, whole(ends, 0) - whole(beat, 0)
  end
  return { all_queues(base), lengths }
end
