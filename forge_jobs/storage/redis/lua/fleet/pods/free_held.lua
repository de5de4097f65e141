-- allow-oom
-- Frees at most `most` jobs on hold of these kinds. Answers how many.
-- uses: jobs
local function free(base, kind, id)
  local job = load(base, id)
  if job and job.hold then
    stop_waiting(base, job)
    if job.run_at > now then
      -- Jobs are put on hold when they are due: the clock has been set back since.
      job.run_at = now
      redis.call('HSET', base .. ':j:' .. id, 'run_at', now)
    end
    start_waiting(base, job)
  end
  redis.call('ZREM', base .. ':held', id)
  redis.call('ZREM', base .. ':held:' .. kind, id)
end

local function handle(base, request)
  local most, kinds = unpack(request)
  local freed = 0
  for _, kind in ipairs(kinds) do
    if freed < most then
      local ids = redis.call('ZRANGE', base .. ':held:' .. kind, 0, most - freed - 1)
      for _, id in ipairs(ids) do
        free(base, kind, id)
      end
      freed = freed + #ids
    end
  end
  return freed
end
