-- allow-oom
-- Applies news to children, each once: { child, parent, action, when the parent ended }. Answers
-- 'applied', 'void', or 'early' when the child's enqueue may still be under way.
-- uses: jobs endings cancels
local ENQUEUE_TAKES = 60 * 1000000

local function unblock(base, job)
  local key = base .. ':j:' .. job.id
  set_status(base, job, 'pending')
  -- As the text it is: a time that a user gave may be too far away for an exact number.
  local run_at = (job.requested or 0) > now and redis.call('HGET', key, 'requested') or text(now)
  job.run_at = tonumber(run_at)
  redis.call('HSET', key, 'status', 'pending', 'cause', 'parents_settled', 'run_at', run_at)
  start_waiting(base, job)
  count('parents_settled')
end

-- A child that was removed since the parent ended will not come.
local function is_expected(base, id, ended)
  local removed = redis.call('ZSCORE', base .. ':gone', id)
  return ended + ENQUEUE_TAKES > now and not (removed and tonumber(removed) >= ended)
end

local function deliver(base, id, parent, action, ended)
  local job = load(base, id)
  if not job then
    return is_expected(base, id, ended) and 'early' or 'void'
  end
  local waits = base .. ':waits:' .. id
  if job.status ~= 'blocked' or redis.call('HGET', waits, parent) ~= 'open' then
    return 'void'
  end
  if action == 'cancel' then
    cancel_waiting(base, job, 'parent_failed')
  elseif action == 'hold' then
    redis.call('HSET', waits, parent, 'held')
  else
    redis.call('HDEL', waits, parent)
    if redis.call('EXISTS', waits) == 0 then
      unblock(base, job)
    end
  end
  return 'applied'
end

local function handle(base, deliveries)
  local answers = {}
  for index, each in ipairs(deliveries) do
    answers[index] = deliver(base, unpack(each))
  end
  return answers
end
