-- Removes a job. Only the timeline stays. Used with jobs, endings, lists and leaving.

local LISTED = {
  blocked = true, pending = true, failed = true, done = true, dead = true, cancelled = true,
}

-- Progress and logs. Lists of lines are freed in a moment, however many lines they have.
local function remove_logs(base, id)
  local key = base .. ':prog:' .. id
  for _, attempt in ipairs(read_record('HKEYS', key) or {}) do
    redis.call('DEL', base .. ':log:' .. id .. ':' .. attempt)
  end
  redis.call('DEL', key)
end

-- Takes a job whose key is no record out of every list that is known without the record.
local function remove_remains(base, id)
  local group = read_fields(base .. ':j:' .. id, 'group')[1]
  if group then
    redis.call('ZREM', base .. ':group:' .. group, id)
  end
  if redis.call('DEL', base .. ':j:' .. id) == 0 then
    return 'not_found'
  end
  remove_logs(base, id)
  redis.call('DEL', base .. ':err:' .. id, base .. ':waits:' .. id, base .. ':kin:' .. id,
    base .. ':ckpt:' .. id)
  for status in pairs(LISTED) do
    redis.call('ZREM', base .. ':s:' .. status, id)
    redis.call('ZREM', base .. ':ended:' .. status, id)
  end
  for _, line in ipairs(redis.call('ZRANGE', base .. ':lines', 0, -1)) do
    redis.call('ZREM', base .. ':ready:' .. line, id)
    local kind = string.match(line, '^%S+ . (.*)$')
    redis.call('ZREM', base .. ':held:' .. kind, id)
    redis.call('ZREM', base .. ':kind:' .. kind, id)
  end
  redis.call('ZREM', base .. ':held', id)
  redis.call('ZREM', base .. ':expiring', id)
  redis.call('ZREM', base .. ':results', id)
  redis.call('ZADD', base .. ':gone', now, id)
  return 'changed'
end

-- Removes a job that has ended, or is in no index of waiting jobs any more. The locator is in another slot:
-- zset 'gone' lists the job by the time of removal until the locator has been taken away.
local function remove_job(base, job)
  local id = job.id
  remove_from_lists(base, job)
  if ENDED[job.status] then
    redis.call('ZREM', base .. ':ended:' .. job.status, id)
  end
  redis.call('ZREM', base .. ':results', id)
  if job.sequence then
    leave_line(base, job)
  end
  if job.kids then
    -- Children that still wait: for a job that has not ended, or that ended before they were requeued.
    tell_children(base, id, ENDED[job.status] and job.status or 'cancelled')
    redis.call('DEL', base .. ':kin:' .. id)
  end
  remove_logs(base, id)
  redis.call('DEL', base .. ':j:' .. id, base .. ':err:' .. id, base .. ':waits:' .. id,
    base .. ':ckpt:' .. id)
  redis.call('ZADD', base .. ':gone', now, id)
end
