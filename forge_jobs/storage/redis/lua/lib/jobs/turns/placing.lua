-- The jobs on hold that may be next, by permits in turn: their places, the first one first. Used with turning.

-- A claim looks at so many permits, and at so many of their jobs where further ones may be next.
local MOST_TURNS, MOST_PLACES = 100, 800

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

-- Adds the places of jobs on hold of a permit, from a number to another. Returns how many.
local function add_places(base, places, turn, from, to)
  local found = redis.call('ZRANGE', base .. ':parked:' .. turn.permit, from, to)
  for number, place in ipairs(found) do
    places[#places + 1] = {
      permit = turn.permit, place = place, priority = tonumber(string.sub(place, 1, 10)) - 2 ^ 31,
      since = turn.since, weight = (turn.used + from + number - 1) / turn.share, turn = turn,
    }
  end
  return #found
end

-- The place of the first job of each permit in turn.
local function list_heads(base)
  local listed, heads = redis.call('ZRANGE', base .. ':turns', 0, MOST_TURNS - 1, 'WITHSCORES'), {}
  for index = 1, #listed, 2 do
    local permit = listed[index]
    local room, share, used = room_of(base, permit)
    local turn = { permit = permit, since = tonumber(listed[index + 1]), room = room, share = share, used = used }
    if not share or room <= 0 or add_places(base, heads, turn, 0, 0) == 0 then
      -- The next end makes a turn again.
      redis.call('ZREM', base .. ':turns', permit)
    end
  end
  table.sort(heads, is_sooner)
  return heads
end

-- The places, each { permit, place, priority, since, weight }, whether there are more, and whether jobs are left out:
-- where as many permits as jobs are wanted have a first job, no job behind the last of these is next.
local function list_places(base, limit, may_leave_out)
  local heads, places = list_heads(base), {}
  local bar = may_leave_out and heads[limit]
  local is_more = bar or redis.call('ZCARD', base .. ':turns') > MOST_TURNS
  local each = math.min(limit, math.ceil(MOST_PLACES / math.max(#heads, 1)))
  for number = 1, bar and limit or #heads do
    local head, turn, found = heads[number], heads[number].turn, 1
    local most = math.min(each, turn.room)
    if bar and head.priority == bar.priority then
      most = math.min(most, math.floor(bar.turn.used * turn.share / bar.turn.share) - turn.used + 1)
    end
    places[#places + 1] = head
    if most > 1 then
      found = 1 + add_places(base, places, turn, 1, most - 1)
    end
    is_more = is_more or found == each and each < limit
  end
  table.sort(places, is_sooner)
  return places, is_more and true or false, bar and true or false
end
