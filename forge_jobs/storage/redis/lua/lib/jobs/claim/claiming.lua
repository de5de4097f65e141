-- Claims the first due jobs of a queue. Used with jobs, slots, finding, claims, unreadable, limiting, taking,
-- found, moving. Queues with shares have a script of their own, which gives the functions of turning and choosing.
--
-- A demand: { host, epoch, worker ids, limit, kinds, bytes, kinds to pass over, whether a step before has
-- made claims }. The payloads of the claims are so many bytes at most. The first one of all steps comes
-- whatever the size.

-- A step puts about so many jobs of full permits on hold, and reads so many where there is one.
local MOST_PARKED, AHEAD = 250, 100

-- The claims, the kinds of due jobs that were passed over, the jobs that cannot be read (id and
-- reason of each), and whether due jobs were left: 'cut' for their size, 'stuck' behind expired ones,
-- 'many' for a further step, 'full' behind others that were put on hold.
local function claim(base, demand, by_turns)
  local host, epoch, workers, limit, kinds, room, passed = unpack(demand)
  local may_claim, is_shared = is_open(base, host, epoch)
  if limit < 1 or not may_claim then
    return {}, {}, {}, ''
  end
  local turns, are_more_turns = {}, false
  if is_shared and not by_turns then
    return {}, {}, {}, 'turns'
  elseif is_shared then
    turns, are_more_turns = by_turns.choose(base, demand)
    if not turns then
      return {}, {}, {}, 'full'
    end
  end
  local claims, unreadable, parked, counted = {}, {}, 0, 0
  local done = { claims = claims, unreadable = unreadable, room = room }
  local picked, found, goes_on
  repeat
    local size = math.max(limit - #claims, parked > 0 and AHEAD or 0)
    local free = #workers - #claims
    picked, found = find_due(base, kinds, passed, free, size)
    local round = take_found(base, turns[1] and by_turns.merge(picked, turns, free) or picked, demand, done)
    local is_done, problem = pcall(move, base, host, round)
    if not is_done then
      put_back(base, host, round)
      error(problem, 0)
    end
    -- At once, since a key of another type may end the step in a later round.
    if #claims > counted then
      count('claimed', host, #claims - counted)
      counted = #claims
    end
    parked = parked + #round.parked
    goes_on = round.parked[1] and parked < MOST_PARKED and not found.is_cut
  until not goes_on or done.is_cut or #claims == limit
  if is_shared then
    by_turns.finish(base, turns)
  end
  for index, entry in ipairs(unreadable) do
    unreadable[index] = { entry.id, set_aside(base, entry.id, entry.line.kind) }
  end
  if found.are_many and not done.is_over then
    write_bounds(base, found.lines)
  end
  local is_short = #claims + #unreadable < limit
  local is_left = is_short and (found.is_cut or parked >= MOST_PARKED or are_more_turns)
  local left = is_left and ((parked > 0 or are_more_turns) and 'full' or 'many') or ''
  return claims, found.strange, unreadable, done.is_cut and 'cut' or is_stuck() and 'stuck' or left
end
