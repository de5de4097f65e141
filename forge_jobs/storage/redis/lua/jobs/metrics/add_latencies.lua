-- Adds one pod's histograms to their minutes: { minute, processing, total } each.
-- uses: histograms
local function handle(base, request)
  local host, samples = unpack(request)
  for _, sample in ipairs(samples) do
    local minute, processing, total = unpack(sample)
    local key = base .. ':l:' .. text(minute)
    add_latency(key, host, processing, total)
    redis.call('PEXPIRE', key, 31 * 86400000)
    redis.call('ZADD', base .. ':minutes', minute, text(minute))
    redis.call('ZADD', base .. ':unfolded', minute, text(minute))
  end
end
