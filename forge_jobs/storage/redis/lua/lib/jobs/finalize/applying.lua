-- Applies an outcome to the job of a claim. Used with jobs, endings, queues, outcomes.

-- Returns whether the outcome is overruled: the job was asked to cancel.
local function is_cancelled(job, outcome, mode)
  return job.cancel and not (outcome.status == 'done' and mode ~= 'revive')
end

-- Back among those that wait.
local function wait_again(base, job, outcome, changes)
  set_status(base, job, outcome.status)
  job.run_at = due_again(job, outcome)
  changes[#changes + 1], changes[#changes + 2] = 'run_at', text(job.run_at)
  if outcome.hold then
    changes[#changes + 1], changes[#changes + 2] = 'hold', outcome.hold
  end
  redis.call(
    'HSET', base .. ':j:' .. job.id, 'status', job.status, 'cause', outcome.cause, 'more', '1',
    unpack(changes)
  )
  count(outcome.cause, job.host)
  start_waiting(base, job, outcome.hold and outcome.limit)
end

local MOST_ERRORS = 32

-- The job's group is that of the newest failure. Programs of earlier releases name none.
local function append_error(base, job, outcome, changes)
  local key, group = base .. ':err:' .. job.id, outcome.group
  redis.call('RPUSH', key, text(now) .. ' ' .. outcome.error)
  redis.call('LTRIM', key, -MOST_ERRORS, -1)
  if group and group ~= job.group then
    if job.group then
      later('ZREM', base .. ':group:' .. job.group, job.id)
    end
    later('ZADD', base .. ':group:' .. group, 0, job.id)
    changes[#changes + 1], changes[#changes + 2] = 'group', group
    job.group = group
  end
end

local function apply(base, job, outcome, mode)
  local overruled = is_cancelled(job, outcome, mode)
  local changes = {}
  write_counts(job, outcome, mode, changes)
  if outcome.error then
    append_error(base, job, outcome, changes)
  end
  if mode ~= 'release' then
    write_result(base, job, not overruled and outcome.result, changes)
  end
  if overruled or ENDED[outcome.status] then
    local cause = overruled and 'cancelled' or outcome.cause
    end_job(base, job, overruled and 'cancelled' or outcome.status, cause, changes, job.host)
  else
    if outcome.again then
      begin_again(base, job, outcome, changes)
    end
    wait_again(base, job, outcome, changes)
  end
  if outcome.length then
    start_cooldown(base, outcome.length, outcome.level)
  end
end
