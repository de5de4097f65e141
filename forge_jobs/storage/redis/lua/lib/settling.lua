-- Ends claims. Used with jobs, claims, endings, queues, outcomes.
--
-- An item: { id, token, number of its outcome, pod, unless it is the call's }; see outcomes.lua.
-- Modes: 'finalize'; 'release', which keeps the result; 'revive', only when stale for `stale_after`.

-- Whether the outcome is overruled: the job was asked to cancel.
local function is_cancelled(job, outcome, mode)
  return job.cancel and not (outcome.status == 'done' and mode ~= 'revive')
end

-- Back among those that wait.
local function wait_again(base, job, outcome, changes)
  set_status(base, job, outcome.status)
  job.run_at = due_again(job, outcome)
  changes[#changes + 1], changes[#changes + 2] = 'run_at', text(job.run_at)
  redis.call(
    'HSET', base .. ':j:' .. job.id, 'status', job.status, 'cause', outcome.cause, 'more', '1',
    unpack(changes)
  )
  start_waiting(base, job)
end

local function apply(base, job, outcome, mode)
  local overruled = is_cancelled(job, outcome, mode)
  local cause = overruled and 'cancelled' or outcome.cause
  local changes = {}
  write_counts(job, outcome, mode, changes)
  if outcome.error then
    append_error(base, job.id, outcome.error)
  end
  if mode ~= 'release' then
    write_result(base, job, not overruled and outcome.result, changes)
  end
  if overruled or ENDED[outcome.status] then
    end_job(base, job, overruled and 'cancelled' or outcome.status, cause, changes)
  else
    wait_again(base, job, outcome, changes)
  end
  count(cause, job.host)
  if outcome.length then
    start_cooldown(base, outcome.length, outcome.level)
  end
end

-- What becomes of an item: 'apply', 'repeat' of what its owner has done already, or false.
local function judge(job, token, host, mode, stale_after)
  if is_current(job, token, host) then
    return (mode ~= 'revive' or job.beat + stale_after <= now) and 'apply'
  end
  return mode ~= 'revive' and job ~= nil and is_repeat(job, token, host) and 'repeat'
end

-- Per item whether it is settled. All are judged before any is applied.
local function settle(base, outcomes, items, mode, stale_after, owner)
  local jobs, verdicts, applied, ended = {}, {}, {}, {}
  for index, item in ipairs(items) do
    local id, token, outcome = item[1], item[2], outcomes[item[3]]
    local is_end = mode == 'finalize' and ENDED[outcome.status]
    if not jobs[id] or jobs[id].is_plain and not is_end then
      jobs[id] = (is_end and load_to_end or load)(base, id)
    end
    verdicts[index] = judge(jobs[id], token, item[4] or owner, mode, stale_after)
    forget_claim(base, id, mode == 'revive' and not jobs[id])
  end
  for index, item in ipairs(items) do
    local id = item[1]
    if verdicts[index] == 'apply' and not applied[id] then
      ended[#ended + 1] = jobs[id]
      applied[id] = true
      apply(base, jobs[id], outcomes[item[3]], mode)
    elseif verdicts[index] == 'apply' then
      -- The second of two equal items: a repeat for the owner, too late for a reaper.
      verdicts[index] = mode ~= 'revive'
    end
    verdicts[index] = verdicts[index] and true
  end
  remove_claims(base, ended)
  return verdicts
end
