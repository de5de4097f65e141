-- allow-oom
-- Lets jobs be ready that strikes with these marks held, at most `most`, each in the order of the queue. Answers
-- how many places are free since.
-- uses: jobs
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
