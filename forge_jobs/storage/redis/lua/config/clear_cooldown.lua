-- allow-oom
-- Ends a cool-down and forgets the level. Answers the state, none where there is no such queue.
-- uses: queues
local function handle(base)
  local key = base .. ':queue'
  if not has_queue(base) then
    return {}
  end
  redis.call('HDEL', key, 'cooldown_until', 'cooldown_level')
  wake('beat')
  return { queue_state(base) }
end
