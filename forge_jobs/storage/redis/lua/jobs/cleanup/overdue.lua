-- no-writes
-- Answers what retention no longer keeps: the jobs first to go as { when they ended, id }, and how many
-- each of the other lists holds, to drop and to fold. Rules: { status, age, how many stay at most (-1: any
-- number) }. Then the age of minutes to fold, that of minutes and hours to drop, that of events, how many
-- events stay at most, and the ages of failures and of the hours of series.
-- uses: ages
local KEPT_AT_LEAST = 60 * 1000000

-- Ids of seeded jobs begin so: see ids.py. Their records stay.
local SEEDED = '^0000000001'

-- Adds at most `wanted` of the first `overdue` jobs of a list.
local function add_first(found, key, overdue, wanted, before)
  local start, most = 0, #found + wanted
  while start < overdue and #found < most do
    local last = math.min(start + wanted, overdue) - 1
    local page = redis.call('ZRANGE', key, start, last, 'WITHSCORES')
    for index = 1, #page, 2 do
      local ended = tonumber(page[index + 1])
      if ended > before then
        return
      elseif #found < most and not string.find(page[index], SEEDED) then
        found[#found + 1] = { ended, page[index] }
      end
    end
    start = last + 1
  end
end

-- The older ones, by either bound: both take from the front of one list.
local function jobs_beyond(base, found, rule, limit)
  local status, age, most = unpack(rule)
  local key = base .. ':ended:' .. status
  local surplus = most >= 0 and redis.call('ZCARD', key) - most or 0
  local before = now - math.max(age, KEPT_AT_LEAST)
  local overdue = redis.call('ZCOUNT', key, '-inf', text(before))
  if surplus > overdue then
    overdue, before = surplus, now - KEPT_AT_LEAST
  end
  local wanted = math.min(overdue, limit)
  if wanted > 0 then
    add_first(found, key, overdue, wanted, before)
  end
end

local function handle(base, request)
  local rules, limit, minutes, history, events, most_events, errors, series = unpack(request)
  local found = {}
  for _, rule in ipairs(rules) do
    jobs_beyond(base, found, rule, limit)
  end
  local function older(list, age)
    return redis.call('ZCOUNT', base .. list, '-inf', text(now - age))
  end
  local function to_fold(list)
    return redis.call('ZCOUNT', base .. list, foldable(minutes, history))
  end
  local surplus = redis.call('ZCARD', base .. ':events') - most_events
  return {
    found, older(':results', 0), math.max(surplus, older(':events', events)), older(':minutes', history),
    older(':gauges', history), older(':gone', KEPT_AT_LEAST), older(':hours', history),
    older(':pod_hours', history), to_fold(':minutes'), to_fold(':gauges'),
    older(':errors', errors), older(':error_hours', errors),
    older(':flow_minutes', minutes), older(':flow_hours', series),
  }
end
