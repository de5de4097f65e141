-- A job and the indexes of the job. Callers have checked, nothing here decides. 'more': see keys.py.

local FIELDS = {
  'status', 'kind', 'host', 'cancel', 'key', 'tags', 'schedule', 'hold', 'kids', 'priority', 'run_at',
  'token', 'settled', 'attempt', 'crashes', 'snoozes', 'requested', 'expires', 'result_ttl',
  'started', 'beat', 'finished', 'group', 'permit', 'sequence',
}

-- Times that users gave are at most this. After the year 2255 the number is not exact.
local FURTHEST = 2 ^ 58

local ENDED = { done = true, dead = true, cancelled = true }

-- Returns the job without texts, nil when there is none. Unset values are nil, counts are zero, and what
-- cannot be read is as in a new job.
local function load(base, id)
  local v = read_fields(base .. ':j:' .. id, unpack(FIELDS))
  if not v[1] then
    return nil
  end
  return {
    id = id, status = v[1], kind = v[2] or '', host = v[3] or nil, cancel = v[4] or nil, key = v[5] or nil,
    tags = v[6] or nil, schedule = v[7] or nil, hold = v[8] or nil, kids = v[9] or nil, group = v[23] or nil,
    priority = whole(v[10], 0), run_at = whole(v[11], now, FURTHEST), token = whole(v[12], 0),
    settled = whole(v[13], 0), attempt = whole(v[14], 0), crashes = whole(v[15], 0),
    snoozes = whole(v[16], 0), requested = whole(v[17], nil, FURTHEST), expires = whole(v[18]),
    result_ttl = whole(v[19]), started = whole(v[20]), beat = whole(v[21], 0), finished = whole(v[22]),
    permit = v[24] or nil, sequence = v[25] or nil,
  }
end

-- Takes the job out of all indexes of waiting jobs, before run_at, crashes or hold of the job change.
local function stop_waiting(base, job)
  if job.hold == 'limit' or job.hold == 'struck' then
    leave_parked(base, job)
  elseif job.hold then
    redis.call('ZREM', base .. ':held', job.id)
    redis.call('ZREM', base .. ':held:' .. job.kind, job.id)
    redis.call('HDEL', base .. ':j:' .. job.id, 'hold')
    job.hold = nil
  elseif job.status ~= 'blocked' then
    remove_ready(base, job)
    free_permit(base, job.permit)
  end
  if job.expires then
    redis.call('ZREM', base .. ':expiring', job.id)
  end
end

-- Puts the job into the indexes of waiting jobs, after status, run_at and crashes of the job are set. With a
-- mark a strike holds the job, and the fields hold and limit are set.
local function start_waiting(base, job, mark)
  if mark then
    local place = string.format(PARKED, job.priority + 2 ^ 31, math.min(job.run_at, LAST_DUE), job.id)
    redis.call('ZADD', base .. ':struck:' .. mark, 0, place)
    redis.call('ZADD', base .. ':struck', 0, mark)
  elseif job.status ~= 'blocked' then
    add_ready(base, job)
    if job.run_at <= now then
      wake_queue(base)
    end
  end
  if job.expires then
    redis.call('ZADD', base .. ':expiring', job.expires, job.id)
  end
end

local function set_status(base, job, status)
  if job.status ~= 'in_progress' then
    later('ZREM', base .. ':s:' .. job.status, job.id)
  end
  later('ZADD', base .. ':s:' .. status, 0, job.id)
  job.status = status
end
