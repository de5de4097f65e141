-- Writes planned jobs. See storing.lua. Used with templates.

-- Writes what jobs of one template do not share.
local function write_own(base, job, key)
  if job.fingerprint then
    redis.call('HSET', key, 'fingerprint', job.fingerprint)
  end
  if job.parents then
    redis.call('HSET', key, 'more', '1', 'waits', #job.parents / 2)
    call_many('HSET', base .. ':waits:' .. job.id, job.parents)
  end
  if job.key then
    redis.call('HSET', key, 'key', job.place, 'more', '1')
    redis.call('HSET', base .. ':unique', job.place, job.id)
    later('ZADD', base .. ':key:' .. job.place, 0, job.id)
  end
  if job.permit then
    redis.call('HSET', key, 'permit', job.permit, unpack(job.is_parked and { 'hold', 'limit' } or {}))
  end
  if job.sequence then
    redis.call('HSET', key, 'sequence', job.sequence, 'more', '1')
  end
  if job.follows then
    note_children(base, job.follows, { job.id, base:match('{(.*)}') .. ' continue' })
  elseif job.mode == 'cooldown' then
    open_window(base, job)
  end
end

local function write(base, job)
  local fields, key = job.template.fields, base .. ':j:' .. job.id
  fields[2], fields[4] = job.parents and 'blocked' or 'pending', job.payload
  redis.call('HSET', key, unpack(fields))
  if job.fingerprint or job.parents or job.key or job.permit or job.sequence then
    write_own(base, job, key)
  end
end

local function list(base, job, jobs)
  local template = job.template
  if job.parents then
    later('ZADD', base .. ':s:blocked', 0, job.id)
  else
    if not (job.struck or job.permit and park_new and park_new(base, job, jobs)) then
      later('ZADD', template.ready, template.due, job.id)
      template.is_ready = true
    end
    later('ZADD', template.pending, 0, job.id)
  end
  for _, key in ipairs(template.lists) do
    later('ZADD', key, 0, job.id)
  end
  if template.expires then
    later('ZADD', base .. ':expiring', template.expires, job.id)
  end
end

-- The jobs last, the list of ready ones first: where a list is of another type nothing is stored.
local function insert_all(base, jobs)
  local scored = {}
  for _, job in ipairs(jobs) do
    local template = job.template
    if not template.fields then
      prepare(base, template)
    end
    list(base, job, jobs)
    if template.is_ready and not template.is_listed then
      template.is_listed = true
      scored[#scored + 1], scored[#scored + 2] = line_score(template.priority, template.due), template.line
      if template.due <= now then
        wake_queue(base)
      end
    end
  end
  lower_bounds(base, scored)
  flush_writes()
  for _, job in ipairs(jobs) do
    write(base, job)
  end
end
