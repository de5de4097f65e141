-- allow-oom
-- Stores one minute of one pod. Minutes end by themselves. The list of them is cut here.
-- uses: pods
local KEPT = 31 * DAY

local function handle(base, request)
  local host, epoch, minute, measured = unpack(request)
  local key = base .. ':g:' .. text(minute)
  redis.call('HSET', key, host, measured)
  redis.call('PEXPIRE', key, KEPT / 1000)
  redis.call('ZADD', base .. ':gauges', minute, text(minute))
  redis.call('ZREMRANGEBYSCORE', base .. ':gauges', '-inf', now - KEPT)
  if is_of(base, host, epoch) then
    local shown = redis.call('HGET', pod_key(base, host), 'gauges_minute')
    if not shown or whole(shown, 0) <= minute then
      redis.call('HSET', pod_key(base, host), 'gauges', measured, 'gauges_minute', minute)
    end
  end
end
