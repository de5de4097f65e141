-- no-writes
-- Ids of jobs that the action has met in this queue, in the order in which they were visited, which
-- is that of the ids.
local function handle(base, id)
  return redis.call('LRANGE', base .. ':acted:' .. id, 0, -1)
end
