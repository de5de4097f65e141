-- Finds due jobs in the order of the queue: priority, due time, id. Used with levels.

local FEW = 16

local function kinds_by_what(kinds, passed)
  local known = {}
  for _, kind in ipairs(passed) do
    known[kind] = 'passed'
  end
  for _, kind in ipairs(kinds) do
    known[kind] = 'mine'
  end
  return known
end

-- The jobs to claim, each { id, run_at, line }, and the demand with what was found beside them: the
-- other kinds that have due jobs, but for those to pass over, the lines that were read, and whether
-- there may be more to claim.
local function find_due(base, kinds, passed, workers, limit)
  local listed = redis.call('ZRANGE', base .. ':lines', 0, -1, 'WITHSCORES')
  local demand = {
    workers = workers, limit = limit, known = kinds_by_what(kinds, passed), strange = {}, lines = {},
    are_many = #listed > 2 * FEW,
    may_expire = redis.call('ZCOUNT', base .. ':expiring', '-inf', now_text) > 0,
  }
  local picked, ends = {}, 1
  while listed[ends] and #picked < limit and not demand.is_cut do
    local at, next_priority = ends, math.floor(listed[ends + 1]) + 1
    repeat
      ends = ends + 2
    until not listed[ends] or tonumber(listed[ends + 1]) >= next_priority
    pick(base, { listed = listed, at = at, ends = ends }, picked, demand)
  end
  return picked, demand
end
