-- allow-oom
-- Removes a bucket. Answers whether there was one.
local function handle(base, request)
  return redis.call('HDEL', base .. ':limits', request[1]) == 1
end
