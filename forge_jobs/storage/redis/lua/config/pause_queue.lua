-- allow-oom
-- Pauses or resumes. Answers the state, none where there is no such queue.
-- uses: queues
local function handle(base, request)
  local key = base .. ':queue'
  if not has_queue(base) then
    return {}
  end
  if request[1] then
    redis.call('HSETNX', key, 'paused', now)
  else
    redis.call('HDEL', key, 'paused')
  end
  wake('beat')
  return { queue_state(base) }
end
