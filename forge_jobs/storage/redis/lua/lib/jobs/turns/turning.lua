-- Fair shares: the keys of limits with a share take turns. All due jobs of such limits are on hold. 'turns'
-- has the permits with jobs on hold and room, by when each had the last turn. See sql/hot/turns.py, which
-- does the same. Used with ready, finding, limiting, moving.

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
