-- Writes planned jobs; see storing.lua.

local function due_at(job)
  if job.delay then
    return now + job.delay
  end
  return job.run_at and tonumber(job.run_at) or now
end

-- The hash. Times that a user gave are texts: beyond the year 2255 a number would not be exact.
local function write_hash(base, job)
  local due = job.run_at or text(job.due)
  local fields = {
    'status', job.status, 'cause', 'enqueued', 'kind', job.kind, 'priority', job.priority,
    'run_at', due, 'enqueued', text(now), 'token', text(now), 'payload', job.payload, 'doc', job.doc,
  }
  local function set(name, value)
    if value then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  set('requested', (job.run_at or job.delay) and due)
  set('expires', job.expires)
  set('key', job.key)
  set('tags', job.tags)
  set('schedule', job.schedule)
  set('fingerprint', job.fingerprint)
  set('result_ttl', job.result_ttl)
  set('kids', job.has_children and '1')
  redis.call('HSET', base .. ':j:' .. job.id, unpack(fields))
end

local function index(base, job)
  for _, key in ipairs(lists_of(base, job)) do
    later('ZADD', key, 0, job.id)
  end
  if not job.parents then
    local line = line_of(job)
    later('ZADD', base .. ':ready:' .. line, job.due, job.id)
    later('ZADD', base .. ':lines', job.priority, line)
  end
  if job.expires then
    later('ZADD', base .. ':expiring', job.expires, job.id)
  end
end

local function insert(base, jobs)
  for _, job in ipairs(jobs) do
    job.due, job.crashes = due_at(job), 0
    job.status = job.parents and 'blocked' or 'pending'
    write_hash(base, job)
    index(base, job)
    if job.key then
      redis.call('HSET', base .. ':unique', job.key, job.id)
    end
    if job.parents then
      local edges = {}
      for _, parent in ipairs(job.parents) do
        edges[#edges + 1], edges[#edges + 2] = parent, 'open'
      end
      call_many('HSET', base .. ':waits:' .. job.id, edges)
    elseif job.due <= now then
      ring_queue(base)
    end
    if job.has_children then
      redis.call('PERSIST', base .. ':kids:' .. job.id)
    end
  end
end
