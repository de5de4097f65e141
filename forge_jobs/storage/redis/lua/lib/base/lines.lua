-- A job's place in the lines of ready jobs. The job needs kind, priority, crashes, run_at. Goes with bounds.lua.

local function line_of(job)
  return job.priority .. (job.crashes > 0 and ' c ' or ' n ') .. job.kind
end

local function add_ready(base, job)
  local line = line_of(job)
  redis.call('ZADD', base .. ':ready:' .. line, job.run_at, job.id)
  redis.call('ZADD', base .. ':lines', 'LT', line_score(job.priority, job.run_at), line)
end

local function remove_ready(base, job)
  local line = line_of(job)
  local key = base .. ':ready:' .. line
  if redis.call('ZREM', key, job.id) == 1 and redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', base .. ':lines', line)
  end
end
