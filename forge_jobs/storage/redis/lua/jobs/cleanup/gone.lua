-- allow-oom
-- Jobs removed at least a minute ago, whose locators can go. One that is stored again is forgotten.
local function handle(base, limit)
  local ids = redis.call(
    'ZRANGE', base .. ':gone', '-inf', text(now - 60 * 1000000), 'BYSCORE', 'LIMIT', 0, limit
  )
  local gone = {}
  for _, id in ipairs(ids) do
    if redis.call('EXISTS', base .. ':j:' .. id) == 1 then
      redis.call('ZREM', base .. ':gone', id)
    else
      gone[#gone + 1] = id
    end
  end
  return gone
end
