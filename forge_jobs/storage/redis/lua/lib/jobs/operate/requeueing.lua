-- Why a job is not requeued, whatever it waits for. Used with jobs.lua.

local REFUSED = {
  done = 'finished', in_progress = 'running', pending = 'waiting', blocked = 'waiting',
}

local function refusal(base, job)
  if REFUSED[job.status] and job.hold ~= 'unreadable' then
    return REFUSED[job.status]
  end
  -- What it was to do is no longer stored.
  if redis.call('HSTRLEN', base .. ':j:' .. job.id, 'payload') == 0 then
    return 'finished'
  end
end

local function is_key_taken(base, job)
  local holder = job.key and redis.call('HGET', base .. ':unique', job.key)
  return holder and holder ~= job.id
end
