-- Finds out whether a parent knows of a child that waits for the parent. Used with jobs, endings, handing and
-- linking.

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

-- Hands the end of a parent over to a child, or notes the child again. link: the tag of the child's queue and
-- the failure policy. since: the number up to which no handover has an effect on the child.
local function tell_anew(base, parent, child, link, since)
  if whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0) < since then
    redis.call('HSET', base .. ':queue', 'handover_seq', text(since))
  end
  write_link(base, parent, 'told', { { child, link } })
end
