-- Why a job is not requeued or restored, with any parents. Used with jobs, places.

-- A finished job may have no payload any more.
local function refusal(base, job)
  return redis.call('HSTRLEN', base .. ':j:' .. job.id, 'payload') == 0 and 'finished' or nil
end

-- Refused are jobs that no operator has cancelled, and those that would expire at once.
local function restore_refusal(base, job)
  if redis.call('HGET', base .. ':j:' .. job.id, 'cause') ~= 'cancelled' then
    return 'finished'
  end
  return refusal(base, job) or job.expires and job.expires <= now and 'expired' or nil
end

-- Another job holds the key. One that holds the key beside a follow-up may begin anew.
local function is_key_taken(base, job)
  local is_taken = false
  for _, holder in ipairs(job.key and ids_at(base, places_of(key_of(job.key))) or {}) do
    if holder == job.id then
      return false
    end
    is_taken = is_taken or holder
  end
  return is_taken
end

-- Takes the job out of the lists of waiting or ended jobs.
local function leave(base, job)
  if WAITING[job.status] then
    stop_waiting(base, job)
  else
    redis.call('ZREM', base .. ':ended:' .. job.status, job.id)
  end
  redis.call('ZREM', base .. ':results', job.id)
end
