-- Writes what the end of a claim leaves on the job. Used with jobs.lua. See settling.lua.
--
-- An outcome comes as { status, cause, delay, handed back, snoozes, crashes, error, result, cool-down
-- length and level, rate limit that the job waits for, payload and doc of a new occurrence, group of the
-- error, hold }, counts as 0 or 1, texts and lengths false when there are none. delay is false for a job that
-- keeps the due time.
local function to_outcome(parts)
  local status, cause, delay, handed_back, snoozes, crashes, error, result, length, level, limit,
    again, group, hold = unpack(parts)
  return {
    status = status, cause = cause, delay = delay, handed_back = handed_back, snoozes = snoozes,
    crashes = crashes, error = error, result = result, length = length, level = level,
    limit = limit, again = again, group = group, hold = hold,
    -- Says nothing but how the job ended, and with which result.
    is_simple = ENDED[status] and not (error or length or limit)
      and handed_back == 0 and snoozes == 0 and crashes == 0,
  }
end

-- Without a delay the job was due at the claim. A due time ahead means that the clock went back since.
local function due_again(job, outcome)
  return outcome.delay and now + outcome.delay or math.min(job.run_at, now)
end

-- Replaces the result, also by none.
local function write_result(base, job, result, changes)
  if result then
    changes[#changes + 1], changes[#changes + 2] = 'result', result
    if job.result_ttl then
      redis.call('ZADD', base .. ':results', now + job.result_ttl, job.id)
    end
  elseif not job.is_plain and redis.call('HDEL', base .. ':j:' .. job.id, 'result') == 1 then
    redis.call('ZREM', base .. ':results', job.id)
  end
end

-- A new occurrence of the job. Without a fingerprint a repeat of the request would be compared with
-- the new payload: '=' stands for any, see admission.lua. One that is due at once has no requested time.
local function begin_again(base, job, outcome, changes)
  local key, number, requested = base .. ':j:' .. job.id, #changes, text(due_again(job, outcome))
  for offset, value in ipairs({
    'payload', outcome.again[1], 'doc', outcome.again[2], 'attempt', 0, 'crashes', 0, 'snoozes', 0,
    'requested', outcome.delay == 0 and '0' or requested,
  }) do
    changes[number + offset] = value
  end
  job.attempt, job.crashes, job.snoozes = 0, 0, 0
  redis.call('HDEL', key, 'snoozed')
  redis.call('HSETNX', key, 'fingerprint', '=')
  redis.call('DEL', base .. ':ckpt:' .. job.id)
end

local function write_counts(job, outcome, mode, changes)
  local function add(name, by)
    if by ~= 0 then
      job[name] = job[name] + by
      changes[#changes + 1], changes[#changes + 2] = name, job[name]
    end
  end
  if outcome.snoozes > 0 and job.snoozes == 0 then
    changes[#changes + 1], changes[#changes + 2] = 'snoozed', text(now)
  end
  if outcome.limit then
    changes[#changes + 1], changes[#changes + 2] = 'limit', outcome.limit
  end
  add('attempt', -outcome.handed_back)
  add('snoozes', outcome.snoozes)
  add('crashes', outcome.crashes)
  if mode ~= 'revive' then
    add('settled', job.token - job.settled)
  end
end
