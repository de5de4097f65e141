-- no-writes
-- The allocation of a queue, if there is such a queue.
-- uses: queues slots allocation
local function handle(base)
  spend(12)
  return { allocation(base) }
end
