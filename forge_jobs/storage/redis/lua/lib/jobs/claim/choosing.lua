-- Chooses the jobs on hold that come next, for a claim. Used with turning.

local function is_sooner(one, other)
  for _, field in ipairs({ 'priority', 'weight', 'since' }) do
    if one[field] ~= other[field] then
      return one[field] < other[field]
    end
  end
  if one.permit ~= other.permit then
    return is_before(one.permit, other.permit)
  end
  return is_before(one.place, other.place)
end

-- The jobs, the first one first, as find_due gives them, and whether there may be more. Nothing while more jobs
-- have to be put on hold. A job that has expired or whose kind is not asked for goes back into the lines, where
-- others see to that.
local function choose(base, demand)
  local workers, limit, kinds = demand[DEMAND.workers], demand[DEMAND.limit], demand[DEMAND.kinds]
  local known, chosen, is_left, is_drained = kinds_by_what(kinds, {}), {}, false, drain(base, demand)
  note_turns(base)
  if not is_drained then
    return
  end
  local places, is_more = list_places(base, limit)
  table.sort(places, is_sooner)
  for _, turn in ipairs(places) do
    if #chosen == limit then
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
  return chosen, is_more or is_left
end
