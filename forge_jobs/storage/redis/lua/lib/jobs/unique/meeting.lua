-- Decides on a request with a unique key. Writes nothing. Used with places, holders.
--
-- Words: 'new', 'duplicate', 'replaced', 'held' (a refusal), with a '+' where the job waits as the
-- follow-up of another one.

-- The request is stored as a job that waits for the end of the holder, whatever the end.
local function follow(job, call, holder)
  job.follows, job.place = holder.id, place_after(holder.place)
  job.parents = { holder.id, 'open continue 0' }
  accept(job, call, job.place, 'blocked')
  return 'new+', job.id
end

local function give_content(job, call, target)
  job.into, call.merged[job.id] = target.id, target.id
  call.replacing[#call.replacing + 1] = job
  local earlier = call.accepted[target.id]
  if earlier then
    -- Pods judge the new content by the strikes, before the run.
    earlier.fingerprint, earlier.struck = earlier.fingerprint or REPLACED, false
  end
  return target.follows and 'replaced+' or 'replaced', target.id
end

-- Takes the key from jobs that wait and have expired. The call ends them, see storing.lua. Where no job of
-- the queue has expired that is one look in a call.
local function leave_expired(base, held, call)
  if call.may_expire == nil then
    call.may_expire = redis.call('ZCOUNT', base .. ':expiring', '-inf', now_text) > 0
  end
  for index = call.may_expire and #held or 0, 1, -1 do
    local holder = held[index]
    if not holder.is_known then
      look(base, holder) -- A job of the same call is known, and has no record yet.
    end
    local expires = CHANGEABLE[holder.status] and redis.call('ZSCORE', base .. ':expiring', holder.id)
    if expires and tonumber(expires) <= now then
      table.remove(held, index)
      call.expired[#call.expired + 1], call.expired[holder.id] = holder.id, true
    end
  end
end

-- Returns the word for a request that is not stored yet, and the job that stands for the request.
local function meet(base, job, call)
  local mode = job.mode
  local merged = REPLACES[mode] and merged_into(base, job, call)
  if merged then
    return is_follow_up(base, merged, call) and 'replaced+' or 'replaced', merged
  end
  local held = holders_of(base, job, call)
  if held[1] then
    leave_expired(base, held, call)
  end
  local holder, last = held[1], held[#held]
  if not holder then
    local opener = mode == 'cooldown' and (held.opener or cooling_down(base, job.key))
    if opener then
      return 'duplicate', opener
    end
    job.place = job.key
    accept(job, call, job.key, job.parents and 'blocked' or 'pending')
    return 'new', job.id
  elseif mode == 'error' then
    return 'held', holder.id
  elseif REPLACES[mode] and CHANGEABLE[last.status] then
    return give_content(job, call, last)
  elseif FOLLOWS[mode] and holder.status == 'in_progress' then
    return follow(job, call, holder)
  end
  return 'duplicate', holder.id
end
