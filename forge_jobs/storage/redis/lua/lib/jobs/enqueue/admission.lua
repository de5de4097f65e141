-- Decides on a new job. Writes nothing.

-- A value that is not set is nil.
local function to_template(fields)
  return {
    kind = fields[TEMPLATE.kind], doc = fields[TEMPLATE.doc], priority = fields[TEMPLATE.priority], run_at = fields[TEMPLATE.run_at] or nil,
    delay = fields[TEMPLATE.delay] or nil, expires = fields[TEMPLATE.expires] or nil, tags = fields[TEMPLATE.tags] or nil,
    schedule = fields[TEMPLATE.schedule] or nil, result_ttl = fields[TEMPLATE.result_ttl] or nil,
  }
end

-- Ends that were noted before now, of which a removed job of the same id has yet to hear, have no effect on the edges.
local function to_job(fields, templates)
  local template, parents = templates[fields[JOB.template]], fields[JOB.parents] or nil
  for index = 2, #(parents or ''), 2 do
    parents[index] = string.gsub(parents[index], '0$', text(now - 1))
  end
  return {
    id = fields[JOB.id], payload = fields[JOB.payload], template = template, kind = template.kind,
    key = fields[JOB.key] or nil, mode = fields[JOB.mode] or nil, fingerprint = fields[JOB.fingerprint] or nil,
    parents = parents, window = fields[JOB.window] or nil, at_most = fields[JOB.at_most] or nil,
    permit = fields[JOB.permit] or nil, sequence = fields[JOB.sequence] or nil, struck = fields[JOB.struck] or nil,
  }
end

-- Returns the content of a stored job: kind, payload, status, fingerprint. nil when there is none.
local function content_of(base, id)
  local kind, payload, status, fingerprint = unpack(
    redis.call('HMGET', base .. ':j:' .. id, 'kind', 'payload', 'status', 'fingerprint')
  )
  return kind and { kind = kind, payload = payload, status = status, fingerprint = fingerprint }
end

local function is_same(job, stored)
  if stored.fingerprint == REPLACED then
    return true -- By now the job has other content.
  elseif job.fingerprint and stored.fingerprint then
    return job.fingerprint == stored.fingerprint
  end
  -- The payload of a job that is not to be kept goes with the end.
  local is_dropped = stored.payload == '' and ENDED[stored.status]
  return job.kind == stored.kind and (is_dropped or job.payload == stored.payload)
end

-- Returns whether any of the ids is stored. Mostly none is.
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

-- Returns the word for one job, and the job that holds the key or has the id. See meeting.lua.
local function admit(base, job, call)
  local stored = call.accepted[job.id] or call.may_be_stored and content_of(base, job.id)
  if stored and not is_same(job, stored) then
    return 'other', job.id
  elseif stored then
    return job.key and is_follow_up(base, job.id, call) and 'repeat+' or 'repeat', job.id
  elseif job.key then
    return meet(base, job, call)
  end
  call.accepted[job.id] = job
  return 'new', job.id
end
