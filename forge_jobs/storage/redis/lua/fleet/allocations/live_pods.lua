-- no-writes
-- Answers what the pods with a live lease say of themselves, and the hosts that are left for a further
-- step, which names them.
-- uses: pods
local function handle(base, named)
  local hosts, rest = part_of_pods(
    #named > 0 and named or redis.call('ZRANGEBYSCORE', base .. ':pods', '(' .. text(now), '+inf')
  )
  local docs = {}
  for index, host in ipairs(hosts) do
    docs[index] = read_record('HGET', pod_key(base, host), 'doc') or ''
  end
  return { docs, rest }
end
