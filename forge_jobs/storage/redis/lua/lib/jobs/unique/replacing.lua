-- Gives the content of requests to jobs that wait, notes which request that was, and opens windows.
-- Used with jobs, lists, templates.

-- A repeat of the request changes nothing for so long, in microseconds.
local REPLACEMENT_KEPT = 600 * 1000000

-- The value says when its time is over. The clock that ends the key may be a minute ahead of `now`.
local function keep_for(key, value, length)
  redis.call('SET', key, value, 'PX', text(math.ceil(length / 1000) + 60000))
end

-- A job that is due already keeps the place in the queue.
local function due_of(base, request, job)
  local due = due_at(request.template)
  if request.at_most then
    local enqueued = redis.call('HGET', base .. ':j:' .. job.id, 'enqueued')
    due = math.min(due, whole(enqueued, now) + request.at_most)
  end
  return due > now and due or math.min(job.due, now)
end

-- Returns what is asked of the job from now on: fields and values in turn. The id, the schedule, the
-- parents and the history of the job stay.
local function content_fields(request, due)
  local template = request.template
  -- As text, because a time that a user gave may be too far away for an exact number.
  local run_at = due == whole(template.run_at, nil, FURTHEST) and template.run_at or text(due)
  local fields = {
    'kind', template.kind, 'payload', request.payload, 'priority', template.priority, 'doc',
    template.doc, 'run_at', run_at,
  }
  for name, value in pairs({
    requested = (template.run_at or template.delay) and run_at, expires = template.expires,
    tags = template.tags, result_ttl = template.result_ttl, permit = request.permit,
  }) do
    if value then
      fields[#fields + 1], fields[#fields + 2] = name, value
    end
  end
  return fields
end

local function give(base, job, request)
  local key, template = base .. ':j:' .. job.id, request.template
  stop_waiting(base, job)
  for _, list in ipairs(shared_lists(base, job)) do
    redis.call('ZREM', list, job.id)
  end
  redis.call('DEL', base .. ':ckpt:' .. job.id) -- Of the content before.
  redis.call('HDEL', key, 'requested', 'expires', 'tags', 'result_ttl', 'permit')
  redis.call('HSET', key, unpack(content_fields(request, job.due)))
  redis.call('HSETNX', key, 'fingerprint', REPLACED)
  job.kind, job.priority, job.run_at = template.kind, template.priority, job.due
  job.tags, job.expires, job.permit = template.tags, template.expires, request.permit
  for _, list in ipairs(shared_lists(base, job)) do
    redis.call('ZADD', list, 0, job.id)
  end
  start_waiting(base, job)
end

-- Of several requests for one job the last one counts.
local function write_replacements(base, requests)
  local jobs, latest = {}, {}
  for _, request in ipairs(requests) do
    local id = request.into
    local job = jobs[id] or load(base, id)
    job.due = job.due or job.run_at
    job.due = due_of(base, request, job)
    jobs[id], latest[id] = job, request
    keep_for(base .. ':merged:' .. request.id, id .. ' ' .. text(now + REPLACEMENT_KEPT), REPLACEMENT_KEPT)
  end
  for id, job in pairs(jobs) do
    give(base, job, latest[id])
  end
end

local function open_window(base, job)
  local ends = text(now + job.window)
  keep_for(base .. ':cool:' .. job.key, job.id .. ' ' .. now_text .. ' ' .. ends, job.window)
end
