-- allow-oom
-- Cancels waiting jobs whose time has run out, earliest first. Answers how many.
-- uses: jobs letters endings cancels
local function handle(base, limit)
  local ids =
    redis.call('ZRANGE', base .. ':expiring', '-inf', text(now), 'BYSCORE', 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local job = load(base, id)
    if job then
      cancel_waiting(base, job, 'expired')
    end
    redis.call('ZREM', base .. ':expiring', id)
  end
  return #ids
end
