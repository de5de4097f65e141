-- Jobs of limits at a claim. Used with taking.lua and moving.lua.

-- How much room there is yet, by permit, and whether the claim has met a job without.
local rooms, has_met_full = {}, false

-- Permits of limits with a share of which the step has put jobs on hold, with the due time of the first.
local new_turns = {}

-- Returns whether there is no room for the job. The claims of this step count. A job of a limit with a share
-- is taken in turn, never from the lines.
local function is_full(base, entry, permit)
  local room, share = rooms[permit], nil
  if not room or new_turns[permit] then
    room, share = room_of(base, permit)
  end
  if share then
    room, new_turns[permit] = 0, math.min(new_turns[permit] or entry.run_at, entry.run_at)
  end
  rooms[permit], entry.permit = room, permit
  has_met_full = has_met_full or room <= 0
  return room <= 0
end
