-- The common part of every end of a job. Used with jobs.lua.

local kept, letters_for = {}, {}

-- Returns whether retention keeps jobs of this status, else the payload goes at once. Then the queue for
-- letters of dead jobs, false for none.
local function keeps(base, status)
  local name = base .. ' ' .. status
  if kept[name] == nil then
    local age, to = unpack(redis.call('HMGET', base .. ':queue', 'keep_' .. status, 'dead_letter'))
    kept[name], letters_for[base] = whole(age, 1) > 0, to and to ~= '' and to
  end
  return kept[name], letters_for[base]
end

-- Writes a new handover record. Returns the key of the children. Numbers go on with the time, so that a
-- queue which lost the last writes gives none again: children void handovers that they had already.
local function add_handover(base, id, status)
  local last = whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
  local seq = text(math.max(last + 1, now))
  redis.call('HSET', base .. ':queue', 'handover_seq', seq)
  redis.call('ZADD', base .. ':handovers', now, seq .. ' ' .. id .. ' ' .. status)
  wake('handover')
  return base .. ':told:' .. seq
end

-- Hands the end over to the children that wait for the job, however many they are.
local function tell_children(base, id, status)
  local kids = base .. ':kids:' .. id
  -- When the children cannot be read, the sweep hands the end over.
  if (read_record('HLEN', kids) or 0) == 0 then
    return
  end
  local told = add_handover(base, id, status)
  redis.call('RENAME', kids, told)
end

local function free_key(base, job)
  if job.key and redis.call('HGET', base .. ':unique', job.key) == job.id then
    redis.call('HDEL', base .. ':unique', job.key)
  end
end

-- Ends a job that is in no index of waiting or claimed jobs any more. changes: fields and values in turn
-- that are to be written beside. host: of the pod whose claim ends. The end is counted with the write of the
-- record, since a key of another type may end the step behind that.
local function end_job(base, job, status, cause, changes, host)
  local key = base .. ':j:' .. job.id
  set_status(base, job, status)
  local is_kept, to = keeps(base, status)
  if to and status == 'dead' then
    write_letter(base, job, to, cause)
  end
  if not is_kept then
    changes[#changes + 1], changes[#changes + 2] = 'payload', ''
  end
  redis.call('HSET', key, 'status', status, 'cause', cause, 'finished', now, unpack(changes))
  count(cause, host)
  if job.cancel then
    redis.call('HDEL', key, 'cancel')
  end
  later('ZADD', base .. ':ended:' .. status, now, job.id)
  free_key(base, job)
  if job.kids then
    tell_children(base, job.id, status)
  end
end
