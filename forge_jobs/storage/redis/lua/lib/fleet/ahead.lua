-- Dates that lie ahead after a clock was set back: see bring_back_jobs.lua.

-- Returns whether a job was due when stored. causes: as for bring_back_jobs.lua.
local function was_due(base, id, causes)
  local key = base .. ':j:' .. id
  local cause, run_at, enqueued, requested, crashes =
    unpack(read_fields(key, 'cause', 'run_at', 'enqueued', 'requested', 'crashes'))
  if cause == 'crashed' then
    return whole(crashes, 0) < 2
  elseif cause == 'enqueued' then
    return whole(run_at, 0) <= whole(enqueued, 0)
  elseif cause == 'parents_settled' or cause == 'succeeded' or cause == 'restored' then
    return whole(requested, 0) < whole(run_at, 0)
  end
  local least = causes[cause]
  return least and whole(run_at, 0) > now + least
end

-- Brings the turns of keys back, in their order: the last one is due now. Returns whether some are left.
local function bring_back_turns(base, tolerance)
  local key = base .. ':turns'
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  local ahead = last[1] and tonumber(last[2]) - now or 0
  if ahead <= tolerance then
    return false
  end
  local first = text(now + tolerance + 1)
  local listed = redis.call('ZRANGE', key, first, '+inf', 'BYSCORE', 'LIMIT', 0, 1000, 'WITHSCORES')
  for index = 1, #listed, 2 do
    redis.call('ZADD', key, text(tonumber(listed[index + 1]) - ahead), listed[index])
  end
  return #listed == 2000
end
