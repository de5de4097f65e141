-- no-writes
-- Answers what pods publish of kinds and queues: every different text, whether a pod of that text has a
-- live lease, and when the last such pod started. Then the hosts that are left for a further step, which
-- names them.
-- uses: pods
local FIELDS = { 'published', 'started', 'lease_until' }

local function handle(base, named)
  local found, places = {}, {}
  local hosts, rest = part_of_pods(
    #named > 0 and named or redis.call('ZRANGE', base .. ':pods', 0, 9999)
  )
  for _, host in ipairs(hosts) do
    local published, started, lease_until =
      unpack(read_fields(pod_key(base, host), unpack(FIELDS)))
    if published then
      local lives = whole(lease_until, 0) > now
      local name = (lives and '+' or '-') .. published
      if not places[name] then
        places[name] = #found + 1
        found[#found + 1] = { published, lives, 0 }
      end
      local entry = found[places[name]]
      entry[3] = math.max(entry[3], whole(started, 0))
    end
  end
  return { found, rest }
end
