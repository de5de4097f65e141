-- Claims: who holds a job. Used with jobs.lua.

local function remove_claims(base, jobs)
  local of_host = {}
  for _, job in ipairs(jobs) do
    later('ZREM', base .. ':claimed', job.id)
    later('SREM', base .. ':own:' .. job.host, job.id)
    if job.started then
      later('ZREM', base .. ':started', job.id)
    end
    of_host[job.host] = (of_host[job.host] or 0) + 1
  end
  for host, number in pairs(of_host) do
    if redis.call('HINCRBY', base .. ':owners', host, -number) <= 0 then
      redis.call('HDEL', base .. ':owners', host)
    end
  end
end

-- The claim (id, token) is the job's current one.
local function is_current(job, token)
  return job ~= nil and job.status == 'in_progress' and job.token == token
end

-- Notes the start of a claim's handler, the first time.
local function mark_started(base, id)
  if redis.call('HSETNX', base .. ':j:' .. id, 'started', now) == 1 then
    redis.call('ZADD', base .. ':started', now, id)
  end
end
