-- no-writes
-- All strikes: name and stored text in turn.
local function handle(base)
  return redis.call('HGETALL', base .. ':strikes')
end
