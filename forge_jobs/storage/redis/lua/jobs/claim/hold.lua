-- Puts at most `most` due jobs of kinds that no pod knows on hold, unless a pod has registered since
-- `version` was read.
-- uses: jobs ready
local function hold_line(base, line, most)
  local ids = redis.call(
    'ZRANGE', base .. ':ready:' .. line.name, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, most
  )
  for _, id in ipairs(ids) do
    local job = load(base, id)
    redis.call('ZREM', base .. ':ready:' .. line.name, id)
    if job then
      free_permit(base, job.permit)
      redis.call('HSET', base .. ':j:' .. id, 'hold', 'unknown_kind')
      redis.call('ZADD', base .. ':held', job.run_at, id)
      redis.call('ZADD', base .. ':held:' .. line.kind, job.run_at, id)
    end
  end
  if redis.call('EXISTS', base .. ':ready:' .. line.name) == 0 then
    redis.call('ZREM', base .. ':lines', line.name)
  end
  return #ids
end

local function handle(base, request)
  local version, kinds, most = unpack(request)
  if whole(redis.call('HGET', base .. ':queue', 'kinds_version'), 0) ~= version then
    return
  end
  local unknown = {}
  for _, kind in ipairs(kinds) do
    unknown[kind] = true
  end
  for _, name in ipairs(all_lines(base)) do
    local line = parse_line(name)
    if unknown[line.kind] and most > 0 then
      most = most - hold_line(base, line, most)
    end
  end
end
