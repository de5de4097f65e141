-- no-writes
-- The oldest minutes that are over and have rows of pods.
local function handle(base, limit)
  local minutes = redis.call(
    'ZRANGE', base .. ':unfolded', '-inf', text(now - 60 * 1000000), 'BYSCORE', 'LIMIT', 0, limit
  )
  for index, minute in ipairs(minutes) do
    minutes[index] = tonumber(minute)
  end
  return minutes
end
