-- Why a job is not requeued, whatever its status and whatever it waits for. Used with jobs.lua.

-- What the job was to do may no longer be stored.
local function refusal(base, job)
  return redis.call('HSTRLEN', base .. ':j:' .. job.id, 'payload') == 0 and 'finished' or nil
end

local function is_key_taken(base, job)
  local holder = job.key and redis.call('HGET', base .. ':unique', job.key)
  return holder and holder ~= job.id
end
