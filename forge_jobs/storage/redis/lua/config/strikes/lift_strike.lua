-- allow-oom
-- Removes a strike. Answers whether there was one.
local function handle(base, request)
  if redis.call('HDEL', base .. ':strikes', request[1]) == 0 then
    return false
  end
  wake('beat')
  return true
end
