-- Fair shares: the keys of limits with a share take turns. All due jobs of such limits are on hold. 'turns'
-- has the permits with jobs on hold and room, by when each had the last turn. See sql/hot/turns.py, which
-- does the same. Used with ready, finding, limiting, moving.

-- A claim looks at so many permits, and about so many of their jobs.
local MOST_TURNS, MOST_PLACES = 100, 400

local OF_TURN = { 'hold', 'permit', 'kind', 'crashes', 'expires', 'status' }

-- Notes the permits of which this step has put jobs on hold, before their turns are read.
local function note_turns(base)
  for permit, since in pairs(new_turns) do
    if redis.call('ZADD', base .. ':turns', 'NX', since, permit) == 1 then
      wake_queue(base)
    end
  end
  new_turns = {}
end

-- Puts jobs that come first on hold. Returns whether there are no more.
local function drain(base, demand)
  local size, parked = demand[DEMAND.limit], 0
  repeat
    local picked, found = find_due(base, demand[DEMAND.kinds], demand[DEMAND.passed], size, size)
    local round = { picked = {}, before = {}, parked = {} }
    for _, entry in ipairs(picked) do
      local permit = read_fields(base .. ':j:' .. entry.id, 'permit')[1]
      if permit and is_full(base, entry, permit) and new_turns[permit] then
        round.picked[#round.picked + 1], round.parked[#round.parked + 1] = entry, entry
      end
    end
    local is_done, problem = pcall(move, base, demand[DEMAND.host], round)
    if not is_done then
      put_back(base, demand[DEMAND.host], round)
      error(problem, 0)
    end
    parked = parked + #round.parked
    if #round.parked == 0 or #picked < size and not found.is_cut then
      return true
    end
    size = 100
  until parked >= 250
  return false
end

-- The places of jobs on hold, each { permit, place, priority, since, weight }, and whether there are more.
local function list_places(base, limit)
  local listed = redis.call('ZRANGE', base .. ':turns', 0, MOST_TURNS - 1, 'WITHSCORES')
  local places, is_more, each = {}, false, math.min(limit, math.ceil(2 * MOST_PLACES / math.max(#listed, 1)))
  for index = 1, #listed, 2 do
    local permit, since = listed[index], tonumber(listed[index + 1])
    local room, share, used = room_of(base, permit)
    local first = share and room > 0
      and redis.call('ZRANGE', base .. ':parked:' .. permit, 0, math.min(each, room) - 1) or {}
    if not first[1] then
      -- The next end makes a turn again.
      redis.call('ZREM', base .. ':turns', permit)
    end
    is_more = is_more or #first == each and each < limit
    for number, place in ipairs(first) do
      places[#places + 1] = {
        permit = permit, place = place, priority = tonumber(string.sub(place, 1, 10)) - 2 ^ 31,
        since = since, weight = (used + number - 1) / share,
      }
    end
  end
  return places, is_more or redis.call('ZCARD', base .. ':turns') > MOST_TURNS
end
