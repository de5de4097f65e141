-- Takes the jobs that a claim has found. Used with taking.lua, claiming.lua.

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
