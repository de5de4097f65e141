-- Claims the first due jobs of a queue. Used with jobs, slots, finding, claims, unreadable, limiting, taking,
-- moving.
--
-- A demand: { host, epoch, worker ids, limit, kinds, bytes, kinds to pass over, whether a step before has
-- made claims }. The payloads of the claims are so many bytes at most. The first one of all steps comes
-- whatever the size.

-- A step puts about so many jobs of full permits on hold, and reads so many where there is one.
local MOST_PARKED, AHEAD = 250, 100

-- Takes jobs that were found, for what the claim has so far. Returns the round: those that are dealt with,
-- the claimed ones by the status before, and those whose permit is used up.
local function take_found(base, picked, demand, done)
  local claims, before, parked, is_cut = done.claims, {}, {}, false
  local last = #picked
  for index, entry in ipairs(picked) do
    local most = (demand[DEMAND.goes_on] or #claims > 0) and done.room
    local worker = demand[DEMAND.workers][#claims + 1] or ''
    local taken, status = take(base, entry, demand[DEMAND.host], worker, most)
    is_cut = taken == false
    if taken == 'full' then
      parked[#parked + 1] = entry
    elseif taken then
      claims[#claims + 1], done.room = taken, done.room - #taken[3]
      local ids = before[status] or {}
      before[status], ids[#ids + 1] = ids, entry.id
    elseif not is_cut then
      done.unreadable[#done.unreadable + 1] = entry
    end
    if is_cut or #claims == demand[DEMAND.limit] then
      last = is_cut and index - 1 or index
      break
    end
  end
  done.is_cut, done.is_over = is_cut, last < #picked
  return { picked = done.is_over and { unpack(picked, 1, last) } or picked, before = before, parked = parked }
end

-- The claims, the kinds of due jobs that were passed over, the jobs that cannot be read (id and
-- reason of each), and whether due jobs were left: 'cut' for their size, 'stuck' behind expired ones,
-- 'many' for a further step, 'full' behind others that were put on hold.
local function claim(base, demand)
  local host, epoch, workers, limit, kinds, room, passed = unpack(demand)
  if limit < 1 or not is_open(base, host, epoch) then
    return {}, {}, {}, ''
  end
  local claims, unreadable, parked = {}, {}, 0
  local done = { claims = claims, unreadable = unreadable, room = room }
  local picked, found, goes_on
  repeat
    local size = math.max(limit - #claims, parked > 0 and AHEAD or 0)
    picked, found = find_due(base, kinds, passed, #workers - #claims, size)
    local round = take_found(base, picked, demand, done)
    local is_done, problem = pcall(move, base, host, round)
    if not is_done then
      put_back(base, host, round)
      error(problem, 0)
    end
    parked = parked + #round.parked
    goes_on = round.parked[1] and parked < MOST_PARKED and not found.is_cut
  until not goes_on or done.is_cut or #claims == limit
  if #claims > 0 then
    count('claimed', host, #claims)
  end
  for index, entry in ipairs(unreadable) do
    unreadable[index] = { entry.id, set_aside(base, entry.id, entry.line.kind) }
  end
  if found.are_many and not done.is_over then
    write_bounds(base, found.lines)
  end
  local is_short = #claims + #unreadable < limit
  local is_left = is_short and (found.is_cut or parked >= MOST_PARKED)
  local left = is_left and (parked > 0 and 'full' or 'many') or ''
  return claims, found.strange, unreadable, done.is_cut and 'cut' or is_stuck() and 'stuck' or left
end
