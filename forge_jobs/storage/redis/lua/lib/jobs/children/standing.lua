-- Whether a parent knows of a child that waits for it. Used with jobs, endings and news.

local function is_told(base, parent, child)
  for _, record in ipairs(news_of(base, parent)) do
    if read_record('HEXISTS', base .. ':told:' .. record[1], child) == 1 then
      return true
    end
  end
  return false
end

-- Nobody will tell the child, whose edge is open or held. A parent that has ended says no more to an open
-- edge, nor that it is done to a held one.
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
