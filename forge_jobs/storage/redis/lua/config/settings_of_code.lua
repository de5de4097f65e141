-- no-writes
-- The settings that code has declared for a queue last, '' for nothing.
local function handle(base)
  return redis.call('HGET', base .. ':queue', 'declared') or ''
end
