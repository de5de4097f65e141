-- allow-oom
-- Removes a bucket. Answers whether there was one.
local function handle(base, request)
  local scope = request[1]
  return redis.call('HDEL', base .. ':limits', scope) == 1
end
