-- Makes one claim. Used with claiming.lua.

local MORE = {
  'status', 'attempt', 'crashes', 'snoozes', 'tags', 'schedule', 'cancel', 'expires', 'started',
  'finished', 'snoozed', 'cause', 'limit',
}
local NOTHING_MORE = { status = 'pending', attempt = 0 }

-- Returns what a job has that is not plain, without the attempt when a number cannot be read.
local function read_more(key)
  local status, attempt, crashes, snoozes, tags, schedule, cancel, expires, started, finished,
    snoozed, cause, limit = unpack(redis.call('HMGET', key, unpack(MORE)))
  attempt, crashes, snoozes = whole(attempt or 0), whole(crashes or 0), whole(snoozes or 0)
  return {
    status = status or 'pending', attempt = crashes and snoozes and attempt, expires = expires,
    has_run = started or finished,
    shown = {
      (attempt or 0) + 1, crashes, snoozes, tags or '', schedule or '', cancel and true or false,
      snoozed or '', cause == 'rate_limited' and limit or '',
    },
  }
end

-- Writes one claim. Returns the claim in the order of job_rows.py, and the status before. Nothing is
-- written for a job whose record cannot be read (nil), nor for a payload beyond `room` (false), nor for one
-- whose permit is used up ('full').
local function take(base, entry, host, worker, room)
  local key, line = base .. ':j:' .. entry.id, entry.line
  -- Where one job waits for its limit, many may. Their payloads are not read.
  local permit = has_met_full and not entry.turn and read_fields(key, 'permit')[1]
  if permit and is_full(base, entry, permit) then
    return 'full'
  end
  local values = read_fields(key, 'payload', 'doc', 'token', 'enqueued', 'more', 'permit')
  local payload, doc, token, enqueued = values[1], values[2], whole(values[3]), values[4]
  permit = values[6]
  local more = values[5] and read_more(key) or NOTHING_MORE
  if not (payload and doc and enqueued and token and more.attempt) then
    return nil
  elseif permit and not entry.turn and is_full(base, entry, permit) then
    return 'full'
  elseif room and #payload > room then
    return false
  end
  local is_later = token < now
  token = is_later and now or token + 1
  redis.call(
    'HSET', key, 'status', 'in_progress', 'token', is_later and now_text or token, 'attempt',
    more.attempt + 1, 'host', host, 'worker', worker, 'claimed', now_text, 'beat', now_text
  )
  if more.has_run then
    redis.call('HDEL', key, 'started', 'finished')
  end
  if more.expires then
    redis.call('ZREM', base .. ':expiring', entry.id)
  end
  if permit then
    redis.pcall('ZADD', base .. ':using:' .. permit, now_text, entry.id)
    rooms[permit] = (rooms[permit] or 1) - 1
    if made_ready[entry.id] then
      made_ready[entry.id] = nil
    end
  end
  if entry.turn then
    entry.is_done, rooms[permit] = true, nil
  end
  return {
    entry.id, line.kind, payload, doc, token, line.priority, entry.run_at, enqueued,
    unpack(more.shown or {}),
  }, more.status
end
