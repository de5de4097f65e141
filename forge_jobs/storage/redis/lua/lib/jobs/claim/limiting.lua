-- Jobs of limits at a claim. Used with taking.lua and moving.lua.

-- How much room there is yet, by permit, and whether the claim has met a job without.
local rooms, has_met_full = {}, false

-- Returns whether there is no room for the job. The claims of this step count.
local function is_full(base, entry, permit)
  local room = rooms[permit] or room_of(base, permit)
  rooms[permit], entry.permit = room, permit
  has_met_full = has_met_full or room <= 0
  return room <= 0
end
