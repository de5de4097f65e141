-- no-writes
-- The newest events, newest first: all of them, or those of one job.
-- uses: events
local function of_queue(base, limit)
  local found = redis.call('ZRANGE', base .. ':events', 0, limit - 1, 'REV', 'WITHSCORES')
  local events = {}
  for index = 1, #found, 2 do
    events[#events + 1] = unpack_event(tonumber(found[index + 1]), found[index])
  end
  return events
end

-- Appended in about the order of their times: several pods may tell of one job. What came so much
-- later that more than these were appended in between is out of place.
local OUT_OF_ORDER = 1000

local function of_job(base, id, limit)
  local events = {}
  local newest = redis.call('LRANGE', base .. ':ev:' .. id, -limit - OUT_OF_ORDER, -1)
  for index, named in ipairs(newest) do
    local at, member = string.match(named, '^(%S+) (.*)$')
    events[index] = unpack_event(whole(at, 0), member or '')
  end
  table.sort(events, function(a, b)
    return a[1] > b[1] or (a[1] == b[1] and is_before(b[2], a[2]))
  end)
  for index = limit + 1, #events do
    events[index] = nil
  end
  return events
end

local function handle(base, request)
  local id, limit = unpack(request)
  local events = id == '' and of_queue(base, limit) or of_job(base, id, limit)
  -- An event takes as long as a command.
  spend(1 + #events)
  return events
end
