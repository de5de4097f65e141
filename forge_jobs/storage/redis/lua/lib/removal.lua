-- Nothing of a job stays but what its timeline says. Used with jobs.lua and lists.lua.

-- The job has ended, or is in no index of waiting ones any more. Its locator is in another slot:
-- zset 'gone' lists it by the time of removal until it has been taken away.
local function remove_job(base, job)
  local id = job.id
  remove_from_lists(base, job)
  if ENDED[job.status] then
    redis.call('ZREM', base .. ':ended:' .. job.status, id)
  end
  redis.call('ZREM', base .. ':results', id)
  redis.call('DEL', base .. ':j:' .. id, base .. ':err:' .. id, base .. ':waits:' .. id)
  redis.call('ZADD', base .. ':gone', now, id)
end
