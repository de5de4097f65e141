-- allow-oom
-- Asks a pod for something, once. Answers 'asked', 'known', 'absent' or 'full'.
-- uses: pods requests
local function handle(base, request)
  local id, host, verb, by, within, kept, most = unpack(request)
  if read_request(base, id, kept) then
    return 'known'
  end
  local pod, list = pod_key(base, host), base .. ':asks:' .. host
  local epoch, lease_until = unpack(read_fields(pod, 'epoch', 'lease_until'))
  if not epoch or whole(lease_until, 0) <= now then
    return 'absent'
  end
  local recent = 0
  for _, other in ipairs(requests_of(base, host)) do
    local fields = read_request(base, other, kept)
    recent = recent + (fields and whole(fields[6], 0) > now and 1 or 0)
  end
  if recent >= most then
    return 'full'
  end
  local key = request_key(base, id)
  redis.call('DEL', key)
  redis.call(
    'HSET', key, 'host', host, 'epoch', epoch, 'verb', verb, 'by', by, 'asked', now_text,
    'until', text(now + within)
  )
  redis.call('PEXPIRE', key, text(kept / 1000))
  redis.call('RPUSH', list, id)
  while #redis.call('LRANGE', list, 0, -1) > most do
    local oldest = redis.call('LINDEX', list, 0)
    redis.call('DEL', request_key(base, oldest))
    redis.call('LREM', list, 1, oldest)
  end
  redis.call('PEXPIRE', list, text(kept / 1000))
  redis.call('HSET', pod, 'asked', text(now + within))
  wake('beat')
  return 'asked'
end
