-- Moves jobs that a claim has picked. A round: { picked, before, parked }, see claiming.lua. Used with ready,
-- claims, limiting.

-- Out of the lines, and to where claims and jobs on hold are listed.
local function move(base, host, round)
  leave_lines(base, round.picked)
  for _, entry in ipairs(round.parked) do
    local id, permit = entry.id, entry.permit
    entry.place = string.format(PARKED, entry.line.priority + 2 ^ 31, math.min(entry.run_at, LAST_DUE), id)
    redis.call('ZADD', base .. ':parked:' .. permit, 0, entry.place)
    redis.call('ZADD', base .. ':parks', 0, permit)
    redis.call('HSET', base .. ':j:' .. id, 'hold', 'limit')
  end
  if next(round.before) then
    list_claims(base, host, round.before)
  end
end

-- Puts back claims that no pod hears of, as a key of another type has ended the step.
local function put_back(base, host, round)
  for _, entry in ipairs(round.parked) do
    redis.pcall('ZREM', base .. ':parked:' .. entry.permit, entry.place or '')
    redis.pcall('HDEL', base .. ':j:' .. entry.id, 'hold')
  end
  for _, entry in ipairs(round.picked) do
    local line = entry.line
    if not entry.turn then
      redis.pcall('ZADD', base .. ':ready:' .. line.name, entry.run_at, entry.id)
      redis.pcall('ZADD', base .. ':lines', line.priority, line.name)
    end
  end
  for status, ids in pairs(round.before) do
    for _, id in ipairs(ids) do
      local key = base .. ':j:' .. id
      redis.pcall('HSET', key, 'status', status)
      redis.pcall('HINCRBY', key, 'attempt', -1)
      redis.pcall('HDEL', key, 'host', 'worker', 'claimed', 'beat')
      redis.pcall('ZADD', base .. ':s:' .. status, 0, id)
      redis.pcall('ZREM', base .. ':claimed', id)
      redis.pcall('SREM', base .. ':own:' .. host, id)
      local expires, permit = unpack(read_fields(key, 'expires', 'permit'))
      if expires then
        redis.pcall('ZADD', base .. ':expiring', expires, id)
      end
      if permit then
        redis.pcall('ZREM', base .. ':using:' .. permit, id)
      end
    end
  end
end
