-- no-writes
-- The limits by key: name and stored number in turn.
local function handle(base)
  spend(1)
  return redis.call('HGETALL', base .. ':at_most')
end
