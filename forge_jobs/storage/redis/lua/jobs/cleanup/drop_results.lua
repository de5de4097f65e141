-- allow-oom
-- Clears results past their own time. Answers how many.
local function handle(base, limit)
  local ids =
    redis.call('ZRANGE', base .. ':results', '-inf', text(now), 'BYSCORE', 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    redis.call('HDEL', base .. ':j:' .. id, 'result', 'result_expires')
    redis.call('ZREM', base .. ':results', id)
  end
  return #ids
end
