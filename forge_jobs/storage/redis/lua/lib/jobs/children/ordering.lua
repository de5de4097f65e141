-- The order of the jobs of a sequence, by their edges. Used with edges.

-- The policy and the key of the sequence of a job.
local function sequence_of(job)
  return string.match(job.sequence, '^(%S+) (.*)$')
end

-- The jobs of the sequence that a job waits for.
local function before_in_line(base, id)
  local flat, found = read_record('HGETALL', base .. ':waits:' .. id) or {}, {}
  for index = 1, #flat, 2 do
    local state, policy = parse_edge(flat[index + 1])
    if WAITS[state] and OF_SEQUENCES[policy] then
      found[#found + 1] = flat[index]
    end
  end
  return found
end

-- Returns the jobs of sequences that wait for the job, also over edges that callers named.
local function behind_in_line(base, id)
  local found = {}
  for _, name in ipairs(read_record('ZRANGE', base .. ':kin:' .. id, 0, -1) or {}) do
    local child = string.match(name, '^%S+')
    local state = read_edge(base, child, id)
    if WAITS[state] and redis.call('HEXISTS', base .. ':j:' .. child, 'sequence') == 1 then
      found[#found + 1] = child
    end
  end
  return found
end

-- Returns whether the job waits for one of the others, by way of any jobs.
local function comes_after(base, id, others)
  local ahead, seen = before_in_line(base, id), {}
  while ahead[1] do
    local one = table.remove(ahead)
    if others[one] then
      return true
    end
    for _, each in ipairs(not seen[one] and before_in_line(base, one) or {}) do
      ahead[#ahead + 1] = each
    end
    seen[one] = true
  end
  return false
end

-- Of jobs that have yet to end the one that all others wait for. nil when there are none.
local function first_of(base, ids)
  local others = {}
  for _, id in ipairs(ids) do
    others[id] = true
  end
  for _, id in ipairs(ids) do
    if not ids[2] or not comes_after(base, id, others) then
      return id
    end
  end
end

-- Of jobs the one that waits for all others. nil when there are none.
local function latest(base, ids)
  local last
  for _, id in ipairs(ids) do
    if not last or comes_after(base, id, { [last] = true }) then
      last = id
    end
  end
  return last
end
