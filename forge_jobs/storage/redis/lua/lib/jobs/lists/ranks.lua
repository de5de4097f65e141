-- Zsets by times, read from any place in them. Of one time the ids decide.

local function ranged(key, first, last, is_descending, ...)
  if is_descending then
    return redis.call('ZRANGE', key, first, last, 'REV', ...)
  end
  return redis.call('ZRANGE', key, first, last, ...)
end

-- Returns the number of members before the place or on the place. A place is a time and an id.
local function rank_behind(key, at, id, is_descending)
  local low, high
  if is_descending then
    low, high = redis.call('ZCOUNT', key, '(' .. text(at), '+inf'), redis.call('ZCOUNT', key, text(at), '+inf')
  else
    low, high = redis.call('ZCOUNT', key, '-inf', '(' .. text(at)), redis.call('ZCOUNT', key, '-inf', text(at))
  end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local member = ranged(key, middle, middle, is_descending)[1]
    if member ~= id and is_before(member, id) == is_descending then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- The next jobs of a zset behind a place ('': from the first): { id, at } each.
local function next_by_time(key, at, id, is_descending, most)
  local first = id == '' and 0 or rank_behind(key, at, id, is_descending)
  local found = ranged(key, first, first + most - 1, is_descending, 'WITHSCORES')
  local jobs = {}
  for index = 1, #found, 2 do
    jobs[#jobs + 1] = { id = found[index], at = tonumber(found[index + 1]) }
  end
  return jobs
end

local function comes_before(one, other, is_descending)
  if one.at ~= other.at then
    return (one.at > other.at) == is_descending
  end
  return one.id ~= other.id and is_before(other.id, one.id) == is_descending
end

-- Walks over several zsets behind a place { at, id }. Answers matching ids, where the walk stopped ('' at
-- the end), the times of these jobs, and the time of the stop.
local function walk_by_time(base, keys, filter, place, wanted, visited, is_descending)
  -- Ids are read far more quickly than jobs.
  local share = math.min(math.max(math.ceil(4 * visited / #keys), 10), visited)
  local jobs, horizon = {}, nil
  for _, key in ipairs(keys) do
    local found = next_by_time(key, place.at, place.id, is_descending, share + 1)
    local cut = found[share + 1] and found[share]
    if cut and (not horizon or comes_before(cut, horizon, is_descending)) then
      horizon = cut
    end
    for _, job in ipairs(found) do
      jobs[#jobs + 1] = job
    end
  end
  if #keys > 1 then
    table.sort(jobs, function(a, b) return comes_before(a, b, is_descending) end)
  end
  local ids, ats, last = {}, {}, 0
  while last < visited and last < #jobs and #ids < wanted
    and not (horizon and comes_before(horizon, jobs[last + 1], is_descending)) do
    last = last + 1
    if matches(base, filter, jobs[last].id) then
      ids[#ids + 1], ats[#ats + 1] = jobs[last].id, jobs[last].at
    end
  end
  spend(10 + #keys + last)
  local stop = last < #jobs and jobs[last]
  return { ids, stop and stop.id or '', ats, stop and stop.at or 0 }
end
