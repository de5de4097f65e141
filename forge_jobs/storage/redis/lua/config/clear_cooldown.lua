-- allow-oom
-- Ends a cool-down, forgets its level. Answers the state, none where there is no such queue.
-- uses: queues
local function handle(base)
  local key = base .. ':queue'
  if not has_queue(base) then
    return {}
  end
  redis.call('HDEL', key, 'cooldown_until', 'cooldown_level')
  ring('beat')
  return { queue_state(base) }
end
