-- no-writes
-- The state, and whether there are limits by key. None where there is no such queue.
-- uses: queues
local function handle(base)
  spend(5)
  local state = queue_state(base)
  if state then
    state[#state + 1] = redis.call('EXISTS', base .. ':at_most') == 1
  end
  return { state }
end
