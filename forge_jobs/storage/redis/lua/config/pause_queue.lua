-- allow-oom
-- Pauses or resumes. Answers the state, none where there is no such queue.
-- uses: queues
local function handle(base, request)
  local key, is_paused = base .. ':queue', request[1]
  if not has_queue(base) then
    return {}
  end
  if is_paused then
    redis.call('HSETNX', key, 'paused', now)
  else
    redis.call('HDEL', key, 'paused')
  end
  wake('beat')
  return { queue_state(base) }
end
