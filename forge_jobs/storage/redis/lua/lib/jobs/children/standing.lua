-- Finds out whether a parent knows of a child that waits for the parent. Used with jobs, endings and handing.

local function is_told(base, parent, child)
  for _, record in ipairs(handovers_of(base, parent)) do
    if read_record('HEXISTS', base .. ':told:' .. record[1], child) == 1 then
      return true
    end
  end
  return false
end

-- Returns whether no handover will come to the child, whose edge is open or held. A parent that has ended
-- hands nothing more over to an open edge, and no success to a held one.
local function is_lost(base, parent, child, state)
  local status = redis.call('HGET', base .. ':j:' .. parent, 'status')
  if is_told(base, parent, child) then
    return false
  elseif not status then
    return state == 'open'
  elseif ENDED[status] and (state == 'open' or status == 'done') then
    return true
  end
  return read_record('HEXISTS', base .. ':kids:' .. parent, child) == 0
end
