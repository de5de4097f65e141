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
    end
  end
end

-- Until the next job that is not due yet falls due; nil when there is none.
local function next_due(base)
  local earliest
  local later_than_now = '(' .. text(now)
  for _, name in ipairs(all_lines(base)) do
    local found = redis.call(
      'ZRANGE', base .. ':ready:' .. name, later_than_now, '+inf', 'BYSCORE', 'LIMIT', 0, 1,
      'WITHSCORES'
    )
    local run_at = tonumber(found[2])
    if run_at and (not earliest or run_at < earliest) then
      earliest = run_at
    end
  end
  return earliest and earliest - now
end

-- Until the first job of all falls due, zero when one is due; nil when there is none.
local function next_ready(base)
  local earliest
  for _, name in ipairs(all_lines(base)) do
    local first = redis.call('ZRANGE', base .. ':ready:' .. name, 0, 0, 'WITHSCORES')
    local run_at = tonumber(first[2])
    if run_at and run_at <= now then
      return 0
    elseif run_at and (not earliest or run_at < earliest) then
      earliest = run_at
    end
  end
  return earliest and earliest - now
end
