-- Stores a strike: { name, rule, most strikes }. Answers whether there is room for it.
-- Hash 'strikes': name -> time of the change, a space, and the rule as JSON text.
local function handle(base, request)
  local name, rule, most = unpack(request)
  local key = base .. ':strikes'
  if redis.call('HEXISTS', key, name) == 0 and redis.call('HLEN', key) >= most then
    return false
  end
  redis.call('HSET', key, name, now_text .. ' ' .. rule)
  wake('beat')
  return true
end
