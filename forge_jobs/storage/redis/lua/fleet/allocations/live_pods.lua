-- no-writes
-- What the pods with a live lease say of themselves.
-- uses: pods
local function handle(base)
  local hosts = redis.call('ZRANGEBYSCORE', base .. ':pods', '(' .. text(now), '+inf')
  local docs = {}
  for index, host in ipairs(hosts) do
    docs[index] = read_record('HGET', pod_key(base, host), 'doc') or ''
  end
  return docs
end
