-- no-writes
-- The marks of the strikes that hold jobs of the queue.
local function handle(base)
  return redis.call('ZRANGE', base .. ':struck', 0, -1)
end
