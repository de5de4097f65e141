-- allow-oom
-- Lets jobs be ready that strikes with these marks held, at most `most`, each in the order of the queue. Answers
-- how many places are free since.
-- uses: jobs

-- A job that was due when enqueued waits no more, after a clock that was ahead then has been set back.
local function be_due(base, job)
  local key = base .. ':j:' .. job.id
  if job.run_at > now and job.run_at <= whole(redis.call('HGET', key, 'enqueued'), 0) then
    job.run_at = now
    redis.call('HSET', key, 'run_at', now)
  end
end

local function handle(base, request)
  local marks, most = unpack(request)
  local left = most
  for _, mark in ipairs(marks) do
    local key = base .. ':struck:' .. mark
    for _, place in ipairs(left > 0 and redis.call('ZRANGE', key, 0, left - 1) or {}) do
      local id = string.sub(place, 27)
      local job = load(base, id)
      if job and job.hold == 'struck' and redis.call('HGET', base .. ':j:' .. id, 'limit') == mark then
        stop_waiting(base, job)
        be_due(base, job)
        start_waiting(base, job)
      end
      redis.call('ZREM', key, place)
      left = left - 1
    end
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', base .. ':struck', mark)
    end
  end
  return most - left
end
