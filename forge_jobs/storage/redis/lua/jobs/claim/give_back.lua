-- allow-oom
-- Ends claims (id, token, kind) of jobs that could not be read. They wait on hold, their attempt unused.
-- uses: jobs claims unreadable
local function give_back(base, item)
  local id, token, kind = unpack(item)
  local job = load(base, id)
  if not is_current(job, token, job and job.host) then
    return
  end
  remove_claims(base, { job })
  set_status(base, job, 'pending')
  redis.call(
    'HSET', base .. ':j:' .. id, 'status', 'pending', 'cause', 'released', 'hold', 'unreadable',
    'attempt', math.max(0, job.attempt - 1), 'more', '1'
  )
  put_on_hold(base, id, kind)
  if job.expires then
    redis.call('ZADD', base .. ':expiring', job.expires, id)
  end
  count('released', job.host)
end

local function handle(base, items)
  for _, item in ipairs(items) do
    give_back(base, item)
  end
end
