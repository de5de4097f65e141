-- Ends claims. Used with jobs, claims, endings, queues, outcomes.
--
-- An item: { id, token, status, cause, delay, handed back, snoozes, crashes, error, result, cool-down
-- length and level }, counts as 0 or 1, texts and lengths false when there are none.
-- Modes: 'finalize'; 'release', due as before; 'revive', only when stale for `stale_after`.

-- Whether the item's transition is overruled: the job was asked to cancel.
local function is_cancelled(job, item, mode)
  return job.cancel and not (item[3] == 'done' and mode ~= 'revive')
end

-- Back among those that wait. A release keeps the due time unless it was overruled.
local function wait_again(base, job, item, mode)
  local key = base .. ':j:' .. job.id
  set_status(base, job, item[3])
  redis.call('HSET', key, 'status', job.status, 'cause', item[4])
  if mode ~= 'release' then
    job.run_at = now + item[5]
    redis.call('HSET', key, 'run_at', text(job.run_at))
  end
  start_waiting(base, job)
end

local function apply(base, job, item, mode)
  local overruled = is_cancelled(job, item, mode)
  local cause = overruled and 'cancelled' or item[4]
  write_counts(base, job, item, mode)
  if item[9] then
    append_error(base, job.id, item[9])
  end
  if mode ~= 'release' then
    write_result(base, job, not overruled and item[10])
  end
  if overruled or ENDED[item[3]] then
    end_job(base, job, overruled and 'cancelled' or item[3], cause)
  else
    wait_again(base, job, item, mode)
  end
  count(cause, job.host)
  if item[11] then
    start_cooldown(base, item[11], item[12])
  end
end

-- What becomes of an item: 'apply', 'repeat' of what its owner has done already, or false.
local function judge(job, item, mode, stale_after)
  local token = item[2]
  if is_current(job, token) then
    return (mode ~= 'revive' or job.beat + stale_after <= now) and 'apply'
  end
  return mode ~= 'revive' and job ~= nil and token > 0 and job.settled == token and 'repeat'
end

-- Per item whether it is settled. All are judged before any is applied.
local function settle(base, items, mode, stale_after)
  local jobs, verdicts, applied = {}, {}, {}
  for index, item in ipairs(items) do
    local id = item[1]
    jobs[id] = jobs[id] or load(base, id)
    verdicts[index] = judge(jobs[id], item, mode, stale_after)
  end
  local ended = {}
  for index, item in ipairs(items) do
    local id = item[1]
    if verdicts[index] == 'apply' and not applied[id] then
      ended[#ended + 1] = jobs[id]
      applied[id] = true
      apply(base, jobs[id], item, mode)
    elseif verdicts[index] == 'apply' then
      -- The second of two equal items: a repeat for the owner, too late for a reaper.
      verdicts[index] = mode ~= 'revive'
    end
    verdicts[index] = verdicts[index] and true
  end
  remove_claims(base, ended)
  return verdicts
end
