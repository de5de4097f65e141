-- no-writes
-- The first strikes that hold jobs of the queue, at most `most`: { mark, how many jobs, when the oldest of the
-- first hundred was due }.
local function handle(base, request)
  local found = {}
  for _, mark in ipairs(redis.call('ZRANGE', base .. ':struck', 0, request[1] - 1)) do
    local key, oldest = base .. ':struck:' .. mark, nil
    for _, place in ipairs(redis.call('ZRANGE', key, 0, 99)) do
      local due = tonumber(string.sub(place, 11, 26))
      oldest = math.min(oldest or due, due)
    end
    if oldest then
      found[#found + 1] = { mark, redis.call('ZCARD', key), oldest }
    end
  end
  return found
end
