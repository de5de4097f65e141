-- Chooses the jobs on hold that come next, for a claim. Used with turning, placing.

-- The jobs of the places that may be taken, as find_due gives them, and whether others were met. A job that has
-- expired or whose kind is not asked for goes back into the lines, where others see to that.
local function pick_turns(base, demand, places)
  local workers, known, chosen, is_left = demand[DEMAND.workers], kinds_by_what(demand[DEMAND.kinds], {}), {}, false
  for _, turn in ipairs(places) do
    if #chosen == demand[DEMAND.limit] then
      return chosen, true
    end
    local id, run_at = string.sub(turn.place, 27), tonumber(string.sub(turn.place, 11, 26))
    local hold, permit, kind, crashes, expires, status =
      unpack(read_fields(base .. ':j:' .. id, unpack(OF_TURN)))
    local job = {
      id = id, kind = kind or '', priority = turn.priority, run_at = run_at, crashes = whole(crashes, 0),
      permit = turn.permit,
    }
    if hold ~= 'limit' or permit ~= turn.permit or status == 'in_progress' then
      redis.call('ZREM', base .. ':parked:' .. turn.permit, turn.place)
      is_left = true
    elseif not known[kind] or whole(expires, math.huge) <= now then
      leave_parked(base, job)
      add_ready(base, job)
      wake_queue(base)
      is_left = true
    elseif job.crashes == 0 or #chosen < #workers then
      chosen[#chosen + 1] = {
        id = id, run_at = run_at, line = parse_line(line_of(job)), permit = permit, turn = turn,
        at = math.max(run_at, turn.since),
      }
    end
  end
  return chosen, is_left
end

-- The jobs, the first one first, and whether there may be more. Nothing while more jobs have to be put on hold.
local function choose(base, demand)
  local limit, is_drained = demand[DEMAND.limit], drain(base, demand)
  note_turns(base)
  if not is_drained then
    return
  end
  local places, are_more, has_bar = list_places(base, limit, true)
  local chosen, is_left = pick_turns(base, demand, places)
  if has_bar and #chosen < limit then
    -- Of some permits the first job cannot be taken, so jobs behind the bar may be.
    places = list_places(base, limit, false)
    chosen = pick_turns(base, demand, places)
  end
  return chosen, are_more or is_left
end
