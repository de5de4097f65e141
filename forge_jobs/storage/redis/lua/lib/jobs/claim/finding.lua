-- Finds due jobs in the order of the queue: priority, due time, id. Used with ready, reading.

-- Moves the jobs of a line to `picked` until one of another comes first. Whether there are more. A
-- job with a crash on record goes to a worker only: what may kill its process must not take others'
-- claims with it.
local function follow(base, line, other, picked, demand)
  local most = line.is_crashed and math.min(demand.workers, demand.limit) or demand.limit
  local number = #picked
  repeat
    if number >= most then
      return false
    end
    local jobs, at = line.jobs, line.at
    number = number + 1
    picked[number], line.at = jobs[at], at + 1
    if not jobs[at + 1] and not read_on(base, line, demand.size, demand.may_expire) then
      return false
    end
  until other and comes_first(other.jobs[other.at], line.jobs[line.at])
  return true
end

-- Merges the lines of one priority: few jobs of each are read that are not taken.
local function pick(base, lines, picked, demand)
  local heap, size, wanted = {}, 0, demand.limit - #picked
  demand.size = math.ceil(wanted / #lines) + (#lines > 1 and wanted > #lines and 1 or 0)
  for _, line in ipairs(wanted > 0 and lines or {}) do
    if read_on(base, line, demand.size, demand.may_expire) then
      size = size + 1
      heap[size] = line
    end
  end
  for at = math.floor(size / 2), 1, -1 do
    sink(heap, size, at)
  end
  while size > 0 and #picked < demand.limit do
    local line, other, third = heap[1], heap[2], heap[3]
    if third and comes_first(third.jobs[third.at], other.jobs[other.at]) then
      other = third
    end
    if not follow(base, line, other, picked, demand) then
      heap[1], heap[size], size = heap[size], nil, size - 1
    end
    if size > 1 then
      sink(heap, size, 1)
    end
  end
end

-- The jobs to claim, each { id, run_at, line }, the other kinds that have due jobs among the priorities
-- that were looked at, but for those to pass over, and whether expired jobs stand in the way.
local function find_due(base, kinds, passed, workers, limit)
  local known = {}
  for what, names in pairs({ passed = passed, mine = kinds }) do
    for _, kind in ipairs(names) do
      known[kind] = known[kind] == 'mine' and 'mine' or what
    end
  end
  local demand = {
    workers = workers, limit = limit,
    may_expire = redis.call('ZCOUNT', base .. ':expiring', '-inf', now) > 0,
  }
  local picked, level, strange, priority = {}, {}, {}, nil
  for _, name in ipairs(all_lines(base)) do
    local line = parse_line(name)
    if line.priority ~= priority then
      pick(base, level, picked, demand)
      priority, level = line.priority, {}
    end
    if #picked >= limit then
      break
    elseif known[line.kind] == 'mine' then
      level[#level + 1], line.read = line, 0
    elseif not known[line.kind] and has_due(base, line) then
      strange[#strange + 1] = line.kind
    end
  end
  pick(base, level, picked, demand)
  return picked, strange, is_stuck()
end
