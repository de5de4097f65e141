-- Finds due jobs in the order of the queue: priority, due time, id. Used with ready.lua.

-- After this many expired jobs a claim reads no line beyond its first page; a sweep takes them away.
local MOST_EXPIRED = 5000
local met = 0

local function is_expired(base, id)
  local expires = redis.call('ZSCORE', base .. ':expiring', id)
  local is_over = expires and tonumber(expires) <= now
  met = is_over and met + 1 or met
  return is_over
end

-- Adds to `found` the first `wanted` due jobs of a line.
local function add_due(base, line, wanted, may_expire, found)
  local key = base .. ':ready:' .. line.name
  local size = may_expire and met < MOST_EXPIRED and math.max(wanted, 200) or wanted
  local start, left = 0, wanted
  while left > 0 and (start == 0 or met < MOST_EXPIRED) do
    local page = redis.call(
      'ZRANGE', key, '-inf', now, 'BYSCORE', 'LIMIT', start, size, 'WITHSCORES'
    )
    start = start + size
    for index = 1, #page, 2 do
      if left > 0 and not (may_expire and is_expired(base, page[index])) then
        found[#found + 1] = { id = page[index], run_at = tonumber(page[index + 1]), line = line }
        left = left - 1
      end
    end
    left = #page > 0 and left or 0
  end
end

local function comes_first(one, other)
  if one.run_at == other.run_at then
    return one.id < other.id
  end
  return one.run_at < other.run_at
end

-- Moves the head of one priority to `picked`. A job with a crash on record goes to a worker only:
-- what may kill its process must not take others' claims with it.
local function pick(level, picked, workers, limit)
  -- The jobs of one line are in order already.
  if level[1] and level[1].line ~= level[#level].line then
    table.sort(level, comes_first)
  end
  for _, entry in ipairs(level) do
    if #picked < limit and not (entry.line.is_crashed and #picked >= workers) then
      picked[#picked + 1] = entry
    end
  end
end

-- The jobs to claim, each { id, run_at, line }, and the other kinds that have due jobs among the
-- priorities that were looked at.
local function find_due(base, kinds, workers, limit)
  local known = {}
  for _, kind in ipairs(kinds) do
    known[kind] = true
  end
  local may_expire = redis.call('ZCOUNT', base .. ':expiring', '-inf', now) > 0
  local picked, level, strange, priority = {}, {}, {}, nil
  for _, name in ipairs(all_lines(base)) do
    local line = parse_line(name)
    if line.priority ~= priority then
      pick(level, picked, workers, limit)
      priority, level = line.priority, {}
    end
    if #picked >= limit then
      break
    elseif known[line.kind] then
      add_due(base, line, limit - #picked, may_expire, level)
    elseif has_due(base, line) then
      strange[#strange + 1] = line.kind
    end
  end
  pick(level, picked, workers, limit)
  return picked, strange
end
