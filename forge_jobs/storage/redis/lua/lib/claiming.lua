-- Claims the first due jobs of a queue. Used with jobs.lua, slots.lua, ready.lua.
--
-- A demand: { host, epoch, worker ids, limit, kinds }.

local MORE = {
  'status', 'attempt', 'crashes', 'snoozes', 'tags', 'schedule', 'cancel', 'expires', 'started',
  'finished', 'snoozed',
}
local NOTHING_MORE = { 'pending' }

-- Writes one claim; gives it in the order of codec.py, and what it was before.
local function take(base, entry, host, worker)
  local key, line = base .. ':j:' .. entry.id, entry.line
  local payload, doc, token, enqueued, more =
    unpack(redis.call('HMGET', key, 'payload', 'doc', 'token', 'enqueued', 'more'))
  local status, attempt, crashes, snoozes, tags, schedule, cancel, expires, started, finished,
    snoozed = unpack(more and redis.call('HMGET', key, unpack(MORE)) or NOTHING_MORE)
  token, attempt = math.max(tonumber(token) + 1, now), tonumber(attempt or 0) + 1
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
    entry.id, line.kind, payload, doc, token, attempt, tonumber(crashes or 0),
    tonumber(snoozes or 0), line.priority, entry.run_at, enqueued, tags or '', schedule or '',
    cancel and true or false, snoozed or '',
  }, status
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

-- The claims, and the kinds of due jobs that were passed over.
local function claim(base, demand)
  local host, epoch, workers, limit, kinds = unpack(demand)
  if limit < 1 or not is_open(base, host, epoch) then
    return {}, {}
  end
  local picked, strange = find_due(base, kinds, #workers, limit)
  if #picked == 0 then
    return {}, strange
  end
  local claims, before = {}, {}
  for index, entry in ipairs(picked) do
    local status
    claims[index], status = take(base, entry, host, workers[index] or '')
    before[status] = before[status] or {}
    table.insert(before[status], entry.id)
  end
  leave_lines(base, picked)
  list_claims(base, host, before)
  count('claimed', host, #claims)
  return claims, strange
end
