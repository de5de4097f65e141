-- Ends claims. Used with jobs, claims, applying, plain_ends.
--
-- An item: { id, token, number of the outcome, pod unless the call's }. See outcomes.lua. Modes:
-- 'finalize', 'release', which keeps the result, and 'revive', only when stale for `stale_after`.

-- Returns 'apply', 'repeat' of an end that the owner has stored already, or false.
local function judge(job, token, host, mode, stale_after)
  if is_current(job, token, host) then
    return (mode ~= 'revive' or job.beat + stale_after <= now) and 'apply'
  end
  return mode ~= 'revive' and job ~= nil and is_repeat(job, token, host) and 'repeat'
end

-- A step that a key of another type has ended may have ended the claim, and not listed the job or not freed
-- the unique key. Jobs on hold and their lists stay as they are.
local function relist(base, job)
  if not job then
    return
  end
  redis.call('ZADD', base .. ':s:' .. job.status, 0, job.id)
  if ENDED[job.status] and job.finished then
    redis.call('ZADD', base .. ':ended:' .. job.status, job.finished, job.id)
    free_key(base, job)
  elseif (job.status == 'pending' or job.status == 'failed') and not job.hold then
    start_waiting(base, job)
  end
end

-- A job that leaves a letter is ended by itself.
local function leaves_letter(base, status)
  return status == 'dead' and select(2, keeps(base, status))
end

-- Returns per item whether the end is settled. All are judged before any is applied.
local function settle(base, outcomes, items, mode, stale_after, owner)
  local jobs, verdicts, applied, ended = {}, {}, {}, {}
  for index = 1, #items do
    local item = items[index]
    local id, outcome = item[END.id], outcomes[item[END.outcome]]
    local is_end, job = mode == 'finalize' and ENDED[outcome.status], jobs[id]
    if not job or job.is_plain and not is_end then
      job = (is_end and load_to_end or load)(base, id)
      jobs[id] = job
    end
    verdicts[index] = judge(job, item[END.token], item[END.host] or owner, mode, stale_after)
    if mode == 'revive' and not (job and job.status == 'in_progress') then
      forget_claim(base, id)
      free_permit(base, job and job.permit, id)
      relist(base, job)
    end
  end
  for index = 1, #items do
    local item = items[index]
    local id, outcome, job = item[END.id], outcomes[item[END.outcome]], jobs[item[END.id]]
    if verdicts[index] == 'apply' and not applied[id] then
      ended[#ended + 1], applied[id] = job, true
      if job.is_plain and outcome.is_simple and not leaves_letter(base, outcome.status) then
        end_plain(base, job, outcome)
      else
        apply(base, job, outcome, mode)
      end
    elseif verdicts[index] == 'apply' then
      -- The second of two equal items: a repeat for the owner, too late for a reaper.
      verdicts[index] = mode ~= 'revive'
    end
    verdicts[index] = verdicts[index] and true
  end
  list_plain_ends(base, outcomes)
  -- Where a list is of another type, the reaper finds what is listed as claimed still.
  flush_writes()
  remove_claims(base, ended)
  return verdicts
end
