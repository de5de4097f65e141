-- Walks that look once at each job that is passed, for all starts of a call. So the places of all jobs of a line
-- cost no square. Used with passing.

-- next_of: function(base, id), the next jobs. key: see passes.
local function new_walk(next_of, key)
  return { next_of = next_of, key = key, beyond = {}, users = {} }
end

-- Forgets what was found by way of a job, which is passed no longer, or has other ways.
local function forget(walk, id)
  local ahead = { id }
  while ahead[1] do
    local one = table.remove(ahead)
    walk.beyond[one] = nil
    for _, each in ipairs(walk.users[one] or {}) do
      ahead[#ahead + 1] = each
    end
    walk.users[one] = nil
  end
end

local function add(place, id)
  if not place.has[id] then
    place.has[id] = true
    place.found[#place.found + 1] = id
  end
end

local function take(walk, place, id)
  for _, each in ipairs(walk.beyond[id]) do
    add(place, each)
  end
  walk.users[id] = walk.users[id] or {}
  table.insert(walk.users[id], place.id)
end

local function look_beyond(base, walk, start)
  local way, on_way = { { id = start, ahead = walk.next_of(base, start), index = 0, found = {}, has = {} } }, {}
  while way[1] and not walk.beyond[start] do
    local place = way[#way]
    place.index, on_way[place.id] = place.index + 1, true
    local id = place.ahead[place.index]
    local is_passed, status, is_other = passes(base, id or place.id, walk.key)
    walk.meets_others = walk.meets_others or id and is_other
    if not id then
      way[#way], on_way[place.id], walk.beyond[place.id] = nil, nil, place.found
      if way[1] then
        take(walk, way[#way], place.id)
      end
    elseif not is_passed and status then
      add(place, id)
    elseif is_passed and on_way[id] then
      -- Some of the jobs wait for each other.
      return active(base, { start }, walk.next_of, walk.key)
    elseif is_passed and walk.beyond[id] then
      take(walk, place, id)
    elseif is_passed then
      way[#way + 1] = { id = id, ahead = walk.next_of(base, id), index = 0, found = {}, has = {} }
    end
  end
  return walk.beyond[start]
end

-- Returns the first jobs from these on that are not passed.
local function reached(base, walk, starts)
  local place = { found = {}, has = {} }
  for _, id in ipairs(starts) do
    local is_passed, status, is_other = passes(base, id, walk.key)
    walk.meets_others = walk.meets_others or is_other
    for _, each in ipairs(is_passed and look_beyond(base, walk, id) or status and { id } or {}) do
      add(place, each)
    end
  end
  return place.found
end
