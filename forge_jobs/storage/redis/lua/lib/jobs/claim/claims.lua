-- Claims: who holds a job. Used with jobs.lua.

-- Returns the job, nil when there is none. Of a plain job only what the end needs.
local function load_to_end(base, id)
  local values = read_fields(base .. ':j:' .. id, 'status', 'token', 'host', 'more', 'permit')
  if values[4] or values[1] ~= 'in_progress' then
    return load(base, id)
  end
  return {
    id = id, is_plain = true, status = 'in_progress', token = whole(values[2], 0),
    token_text = values[2], host = values[3], settled = 0, attempt = 1, crashes = 0, snoozes = 0,
    permit = values[5],
  }
end

local function remove_claims(base, jobs)
  local claimed, started, of_host = {}, {}, {}
  for index = 1, #jobs do
    local job = jobs[index]
    local id, host = job.id, job.host or ''
    local ids = of_host[host] or {}
    claimed[index], of_host[host], ids[#ids + 1] = id, ids, id
    if job.started then
      started[#started + 1] = id
    end
    free_permit(base, job.permit, id)
  end
  call_many('ZREM', base .. ':claimed', claimed)
  call_many('ZREM', base .. ':started', started)
  for host, ids in pairs(of_host) do
    call_many('SREM', base .. ':own:' .. host, ids)
    own(host, -#ids)
  end
end

-- The claim (id, token) of the pod is the job's current one.
local function is_current(job, token, host)
  return job ~= nil and job.status == 'in_progress' and job.token == token and job.host == host
end

-- The pod of the last claim stays with the job, and so is known until the next claim.
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
    local number = #all
    for index = 1, #ids do
      number = number + 1
      all[number], scored[2 * number - 1], scored[2 * number] = ids[index], now_text, ids[index]
    end
  end
  call_many('ZADD', base .. ':claimed', scored)
  call_many('SADD', base .. ':own:' .. host, all)
  own(host, #all)
end

-- The record of a claimed job may be gone, and with the record the pod that had claimed the job.
local function forget_claim(base, id)
  redis.call('ZREM', base .. ':claimed', id)
  redis.call('ZREM', base .. ':started', id)
  for _, host in ipairs(redis.call('HKEYS', base .. ':owners')) do
    if redis.call('SREM', base .. ':own:' .. host, id) == 1 then
      own(host, -1)
    end
  end
end
