-- no-writes
-- How many waiting jobs have run out of time.
local function handle(base)
  return redis.call('ZCOUNT', base .. ':expiring', '-inf', text(now))
end
