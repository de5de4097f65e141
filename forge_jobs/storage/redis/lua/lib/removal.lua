-- Nothing of a job stays but what its timeline says. Used with jobs, endings and lists.

-- The job has ended, or is in no index of waiting ones any more. Its locator is in another slot:
-- zset 'gone' lists it by the time of removal until it has been taken away.
local function remove_job(base, job)
  local id = job.id
  remove_from_lists(base, job)
  if ENDED[job.status] then
    redis.call('ZREM', base .. ':ended:' .. job.status, id)
  end
  redis.call('ZREM', base .. ':results', id)
  if job.kids then
    -- Those that still wait: for a job that has not ended, or that ended before they were requeued.
    tell_children(base, id, ENDED[job.status] and job.status or 'cancelled')
  end
  redis.call('DEL', base .. ':j:' .. id, base .. ':err:' .. id, base .. ':waits:' .. id)
  redis.call('ZADD', base .. ':gone', now, id)
end
