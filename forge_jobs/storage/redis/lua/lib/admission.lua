-- What is to become of a new job. Writes nothing.

-- In the order of codec.py.
local function to_job(fields)
  local job = {
    id = fields[1], kind = fields[2], payload = fields[3], doc = fields[4], priority = fields[5],
    run_at = fields[6], delay = fields[7], expires = fields[8], key = fields[9],
    refuses = fields[10], tags = fields[11], schedule = fields[12], fingerprint = fields[13],
    result_ttl = fields[14], parents = fields[15], has_children = fields[16],
  }
  for field, value in pairs(job) do
    job[field] = value or nil
  end
  return job
end

-- The content of a stored job: kind, payload, status, fingerprint; nil when there is none.
local function content_of(base, id)
  local kind, payload, status, fingerprint = unpack(
    redis.call('HMGET', base .. ':j:' .. id, 'kind', 'payload', 'status', 'fingerprint')
  )
  return kind and { kind = kind, payload = payload, status = status, fingerprint = fingerprint }
end

local function is_same(job, stored)
  if job.fingerprint and stored.fingerprint then
    return job.fingerprint == stored.fingerprint
  end
  -- The payload of a job that is not to be kept goes when it ends.
  local is_dropped = stored.payload == '' and ENDED[stored.status]
  return job.kind == stored.kind and (is_dropped or job.payload == stored.payload)
end

-- The job that holds the key of this one, nil when it is this one itself from now on.
local function holder_of(base, job, holders)
  local holder = holders[job.key] or redis.call('HGET', base .. ':unique', job.key) or job.id
  holders[job.key] = holder
  return holder ~= job.id and holder or nil
end

-- Whether any of the ids is stored: mostly none is.
local function is_any_stored(base, jobs)
  local found = 0
  for first = 1, #jobs, 400 do
    local keys = {}
    for index = first, math.min(first + 399, #jobs) do
      keys[#keys + 1] = base .. ':j:' .. jobs[index][1]
    end
    found = found + redis.call('EXISTS', unpack(keys))
  end
  return found > 0
end

-- The word for one job, and the job that it stands for.
local function admit(base, job, accepted, holders, request)
  local stored = accepted[job.id] or request.is_any_stored and content_of(base, job.id)
  if stored then
    return is_same(job, stored) and 'repeat' or 'other', job.id
  end
  local holder = job.key and holder_of(base, job, holders)
  if holder and job.refuses then
    return 'held', holder
  elseif holder then
    return request[6] and 'again' or 'duplicate', holder
  end
  accepted[job.id] = job
  return 'new', job.id
end
