-- Claims the first due jobs of a queue. Used with jobs.lua, slots.lua, ready.lua.
--
-- A demand: { host, epoch, worker ids, limit, kinds }.

local WANTED = {
  'kind', 'payload', 'doc', 'token', 'attempt', 'crashes', 'snoozes', 'priority', 'run_at', 'enqueued',
  'tags', 'schedule', 'cancel', 'status', 'expires', 'started', 'finished',
}

-- Writes one claim; gives it in the order of codec.py, and what it was before.
local function take(base, id, host, worker)
  local key = base .. ':j:' .. id
  local kind, payload, doc, token, attempt, crashes, snoozes, priority, run_at, enqueued, tags,
    schedule, cancel, status, expires, started, finished =
    unpack(redis.call('HMGET', key, unpack(WANTED)))
  token, attempt = tonumber(token) + 1, tonumber(attempt or 0) + 1
  redis.call(
    'HSET', key, 'status', 'in_progress', 'token', text(token), 'attempt', attempt, 'host', host,
    'worker', worker, 'claimed', now, 'beat', now
  )
  if started or finished then
    redis.call('HDEL', key, 'started', 'finished')
  end
  if expires then
    redis.call('ZREM', base .. ':expiring', id)
  end
  return {
    id, kind, payload, doc, token, attempt, tonumber(crashes or 0), tonumber(snoozes or 0),
    tonumber(priority), run_at, enqueued, tags or '', schedule or '', cancel ~= false,
  }, status
end

-- Moves all that was claimed to where claims are listed.
local function list_claims(base, host, before)
  local scored, listed, all = {}, {}, {}
  for status, ids in pairs(before) do
    call_many('ZREM', base .. ':s:' .. status, ids)
    for _, id in ipairs(ids) do
      all[#all + 1] = id
      scored[#scored + 1], scored[#scored + 2] = now, id
      listed[#listed + 1], listed[#listed + 2] = 0, id
    end
  end
  call_many('ZADD', base .. ':claimed', scored)
  call_many('ZADD', base .. ':s:in_progress', listed)
  call_many('SADD', base .. ':own:' .. host, all)
  redis.call('HINCRBY', base .. ':owners', host, #all)
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
    claims[index], status = take(base, entry.id, host, workers[index] or '')
    before[status] = before[status] or {}
    table.insert(before[status], entry.id)
  end
  leave_lines(base, picked)
  list_claims(base, host, before)
  count('claimed', host, #claims)
  return claims, strange
end
