-- no-writes
-- The state, none where there is no such queue.
-- uses: queues
local function handle(base)
  spend(5)
  return { queue_state(base) }
end
