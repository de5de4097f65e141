-- Claims: who holds a job. Used with jobs.lua.

-- The job, nil when there is none; of a plain one only what its end needs.
local function load_to_end(base, id)
  local status, token, host, more =
    unpack(read_fields(base .. ':j:' .. id, 'status', 'token', 'host', 'more'))
  if more or status ~= 'in_progress' then
    return load(base, id)
  end
  return {
    id = id, is_plain = true, status = status, token = whole(token, 0), host = host, settled = 0,
    attempt = 1, crashes = 0, snoozes = 0,
  }
end

local function remove_claims(base, jobs)
  for _, job in ipairs(jobs) do
    later('ZREM', base .. ':claimed', job.id)
    later('SREM', base .. ':own:' .. (job.host or ''), job.id)
    if job.started then
      later('ZREM', base .. ':started', job.id)
    end
    own(job.host or '', -1)
  end
end

-- The claim (id, token) of the pod is the job's current one.
local function is_current(job, token, host)
  return job ~= nil and job.status == 'in_progress' and job.token == token and job.host == host
end

-- The pod of the last claim stays with the job, so it is known until somebody claims again.
local function is_repeat(job, token, host)
  return token > 0 and job.settled == token and (job.token ~= token or job.host == host)
end

-- Notes the start of a claim's handler, the first time.
local function mark_started(base, id)
  if redis.call('HSETNX', base .. ':j:' .. id, 'started', now) == 1 then
    redis.call('HSET', base .. ':j:' .. id, 'more', '1')
    redis.call('ZADD', base .. ':started', now, id)
  end
end

-- Moves all that was claimed to where claims are listed.
local function list_claims(base, host, before)
  local scored, all = {}, {}
  for status, ids in pairs(before) do
    call_many('ZREM', base .. ':s:' .. status, ids)
    for _, id in ipairs(ids) do
      all[#all + 1] = id
      scored[#scored + 1], scored[#scored + 2] = now, id
    end
  end
  call_many('ZADD', base .. ':claimed', scored)
  call_many('SADD', base .. ':own:' .. host, all)
  own(host, #all)
end

-- The record of a claimed job may be gone, and with it who had claimed it.
local function forget_claim(base, id, is_gone)
  if not is_gone then
    return
  end
  redis.call('ZREM', base .. ':claimed', id)
  redis.call('ZREM', base .. ':started', id)
  for _, host in ipairs(redis.call('HKEYS', base .. ':owners')) do
    if redis.call('SREM', base .. ':own:' .. host, id) == 1 then
      own(host, -1)
    end
  end
end
