-- allow-oom
-- Removes a limit by key. Answers whether there was one.
local function handle(base, request)
  return redis.call('HDEL', base .. ':at_most', request[1]) == 1
end
