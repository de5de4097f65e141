-- Claims the first due jobs of a queue. Used with jobs, slots, finding, claims, unreadable, taking.
--
-- A demand: { host, epoch, worker ids, limit, kinds, bytes, kinds to pass over, whether a step before has
-- made claims }. The payloads of the claims are so many bytes at most. The first one of all steps comes
-- whatever the size.

-- Out of the lines, and to where claims are listed.
local function move(base, host, picked, before)
  leave_lines(base, picked)
  if next(before) then
    list_claims(base, host, before)
  end
end

-- Puts back claims that no pod hears of, as a key of another type has ended the step.
local function put_back(base, host, picked, before)
  for _, entry in ipairs(picked) do
    local line = entry.line
    redis.pcall('ZADD', base .. ':ready:' .. line.name, entry.run_at, entry.id)
    redis.pcall('ZADD', base .. ':lines', line.priority, line.name)
  end
  for status, ids in pairs(before) do
    for _, id in ipairs(ids) do
      local key = base .. ':j:' .. id
      redis.pcall('HSET', key, 'status', status)
      redis.pcall('HINCRBY', key, 'attempt', -1)
      redis.pcall('HDEL', key, 'host', 'worker', 'claimed', 'beat')
      redis.pcall('ZADD', base .. ':s:' .. status, 0, id)
      redis.pcall('ZREM', base .. ':claimed', id)
      redis.pcall('SREM', base .. ':own:' .. host, id)
      local expires = redis.pcall('HGET', key, 'expires')
      if type(expires) == 'string' then
        redis.pcall('ZADD', base .. ':expiring', expires, id)
      end
    end
  end
end

-- The claims, the kinds of due jobs that were passed over, the jobs that cannot be read (id and
-- reason of each), and whether due jobs were left: 'cut' for their size, 'stuck' behind expired ones,
-- 'many' for a further step.
local function claim(base, demand)
  local host, epoch, workers, limit, kinds, room, passed, goes_on = unpack(demand)
  if limit < 1 or not is_open(base, host, epoch) then
    return {}, {}, {}, ''
  end
  local picked, found = find_due(base, kinds, passed, #workers, limit)
  local claims, before, unreadable = {}, {}, {}
  local left = is_stuck() and 'stuck' or found.is_cut and #picked < limit and 'many' or ''
  for index = 1, #picked do
    local entry = picked[index]
    local most = (goes_on or #claims > 0) and room
    local taken, status = take(base, entry, host, workers[#claims + 1] or '', most)
    if taken == false then
      left, picked = 'cut', { unpack(picked, 1, index - 1) }
      break
    elseif taken then
      claims[#claims + 1], room = taken, room - #taken[3]
      local ids = before[status] or {}
      before[status], ids[#ids + 1] = ids, entry.id
    else
      unreadable[#unreadable + 1] = entry
    end
  end
  local is_done, problem = pcall(move, base, host, picked, before)
  if not is_done then
    put_back(base, host, picked, before)
    error(problem, 0)
  elseif #claims > 0 then
    count('claimed', host, #claims)
  end
  for index, entry in ipairs(unreadable) do
    unreadable[index] = { entry.id, set_aside(base, entry.id, entry.line.kind) }
  end
  if found.are_many and left ~= 'cut' then
    write_bounds(base, found.lines)
  end
  return claims, found.strange, unreadable, left
end
