-- The lines of ready jobs: one per priority and kind, split by whether a crash is on record.

local function parse_line(line)
  local priority, mark, kind = string.match(line, '^(%-?%d+) (.) (.*)$')
  return { name = line, priority = tonumber(priority), is_crashed = mark == 'c', kind = kind }
end

-- The names of the lines in use, lowest priority first.
local function all_lines(base)
  return redis.call('ZRANGE', base .. ':lines', 0, -1)
end

local function has_due(base, line)
  local first = redis.call('ZRANGE', base .. ':ready:' .. line.name, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) <= now
end

local function leave_lines(base, picked)
  local of_line = {}
  for index = 1, #picked do
    local entry = picked[index]
    local ids = of_line[entry.line] or {}
    of_line[entry.line], ids[#ids + 1] = ids, entry.id
  end
  for line, ids in pairs(of_line) do
    local name = line.name
    local key = base .. ':ready:' .. name
    call_many('ZREM', key, ids)
    if redis.call('EXISTS', key) == 0 then
      redis.call('ZREM', base .. ':lines', name)
      line.is_gone = true
    end
  end
end

-- Returns the earliest due time in the lines. With `only_ahead` of jobs that are not due yet. Zero where
-- one is due, nil when there is none. A line whose bound is later is not read, so the line with the
-- earliest bound is read first. Of many lines the answer may be late by one STEP.
local function earliest_in_lines(base, only_ahead)
  local listed = redis.call('ZRANGE', base .. ':lines', 0, -1, 'WITHSCORES')
  local from, earliest = only_ahead and '(' .. now_text or '-inf', nil
  local function read(at)
    local found = redis.call(
      'ZRANGE', base .. ':ready:' .. listed[at], from, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES'
    )
    local run_at = tonumber(found[2])
    earliest = run_at and math.min(run_at, earliest or run_at) or earliest
  end
  local late_by = #listed > 64 and STEP or 0
  local first, bound_of_first
  for at = 1, #listed, 2 do
    local bound = bound_of(listed[at + 1])
    listed[at + 1] = bound
    if not first or bound < bound_of_first then
      first, bound_of_first = at, bound
    end
  end
  if first then
    read(first)
  end
  for at = 1, #listed, 2 do
    if not only_ahead and earliest and earliest <= now then
      return 0
    elseif at ~= first and (not earliest or listed[at + 1] + late_by <= earliest) then
      read(at)
    end
  end
  return earliest and math.max(0, earliest - now)
end
