-- Claims the first due jobs of a queue. Used with jobs, slots, ready, claims, unreadable.
--
-- A demand: { host, epoch, worker ids, limit, kinds, bytes, kinds to pass over,
-- whether a step before has made claims }. The payloads of the claims are so many bytes at most; the
-- first one of all steps comes whatever its size.

local MORE = {
  'status', 'attempt', 'crashes', 'snoozes', 'tags', 'schedule', 'cancel', 'expires', 'started',
  'finished', 'snoozed',
}
local NOTHING_MORE = { 'pending' }

-- Writes one claim; gives it in the order of codec.py, and what it was before. Nothing is written
-- for a job whose record cannot be read (nil), nor for a payload beyond `room` (false).
local function take(base, entry, host, worker, room)
  local key, line = base .. ':j:' .. entry.id, entry.line
  local payload, doc, token, enqueued, more =
    unpack(read_fields(key, 'payload', 'doc', 'token', 'enqueued', 'more'))
  local status, attempt, crashes, snoozes, tags, schedule, cancel, expires, started, finished,
    snoozed = unpack(more and redis.call('HMGET', key, unpack(MORE)) or NOTHING_MORE)
  token, attempt = whole(token), whole(attempt or 0)
  crashes, snoozes = whole(crashes or 0), whole(snoozes or 0)
  if not (payload and doc and enqueued and token and attempt and crashes and snoozes) then
    return nil
  elseif room and #payload > room then
    return false
  end
  token, attempt = math.max(token + 1, now), attempt + 1
  redis.call(
    'HSET', key, 'status', 'in_progress', 'token', token, 'attempt', attempt, 'host', host,
    'worker', worker, 'claimed', now, 'beat', now
  )
  if started or finished then
    redis.call('HDEL', key, 'started', 'finished')
  end
  if expires then
    redis.call('ZREM', base .. ':expiring', entry.id)
  end
  return {
    entry.id, line.kind, payload, doc, token, attempt, crashes, snoozes, line.priority,
    entry.run_at, enqueued, tags or '', schedule or '', cancel and true or false, snoozed or '',
  }, status
end

-- The claims, the kinds of due jobs that were passed over, the jobs that cannot be read (id and
-- reason of each), and whether due jobs were left: 'cut' for their size, 'stuck' behind expired ones.
local function claim(base, demand)
  local host, epoch, workers, limit, kinds, room, passed, goes_on = unpack(demand)
  if limit < 1 or not is_open(base, host, epoch) then
    return {}, {}, {}, ''
  end
  local picked, strange, is_behind = find_due(base, kinds, passed, #workers, limit)
  local claims, before, unreadable, left = {}, {}, {}, is_behind and 'stuck' or ''
  for index, entry in ipairs(picked) do
    local most = (goes_on or #claims > 0) and room
    local taken, status = take(base, entry, host, workers[#claims + 1] or '', most)
    if taken == false then
      left, picked = 'cut', { unpack(picked, 1, index - 1) }
      break
    elseif taken then
      claims[#claims + 1], room = taken, room - #taken[3]
      status = status or 'pending'
      before[status] = before[status] or {}
      table.insert(before[status], entry.id)
    else
      unreadable[#unreadable + 1] = entry
    end
  end
  leave_lines(base, picked)
  if #claims > 0 then
    list_claims(base, host, before)
    count('claimed', host, #claims)
  end
  for index, entry in ipairs(unreadable) do
    unreadable[index] = { entry.id, set_aside(base, entry.id, entry.line.kind) }
  end
  return claims, strange, unreadable, left
end
