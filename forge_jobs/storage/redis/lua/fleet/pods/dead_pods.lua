-- no-writes
-- All queues, and at most `limit` pods (host, epoch) whose lease ran out at least `dead_for` ago,
-- the longest dead first.
-- uses: pods
local function handle(base, request)
  local dead_for, limit = unpack(request)
  local hosts = redis.call(
    'ZRANGEBYSCORE', base .. ':pods', '-inf', now - dead_for, 'LIMIT', 0, limit
  )
  local found = {}
  for index, host in ipairs(hosts) do
    found[index] = { host, read_record('HGET', pod_key(base, host), 'epoch') or '' }
  end
  return { all_queues(base), found }
end
