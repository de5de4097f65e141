-- Limits by key. A permit is the name of a limit and a key of it: 'name\nkey'. The jobs in progress count,
-- which are in 'using:<permit>'. Jobs of a full permit are on hold, in 'parked:<permit>', out of the lines. Of
-- these at least as many stand ready as there is room: see openings.lua. Goes with lines.lua. Few functions,
-- since each run of a script makes them all.

-- The number and the share of each limit, by base and by name, read once in a step.
local limits_read = {}

-- Returns how many more jobs of the permit may be in progress, the share of the limit, nil for none, and how
-- many jobs are in progress. Without a limit any number may be. Beside a key of another type none: the jobs
-- wait until the key is back.
local function room_of(base, permit)
  local name = string.match(permit, '^[^\n]*')
  local of_base = limits_read[base] or {}
  local limit, stored = of_base[name], nil
  if not limit then
    stored = read_record('HGET', base .. ':at_most', name)
  end
  if stored ~= nil then
    local number, share = string.match(stored or '', '^(%-?%d*)/?(%d*)')
    limit = { whole(number, math.huge), whole(share) }
    of_base[name], limits_read[base] = limit, of_base
  end
  local used = redis.pcall('ZCARD', base .. ':using:' .. permit)
  if not limit or type(used) ~= 'number' then
    return 0
  end
  return limit[1] - used, limit[2], used
end

-- A job on hold stands among those of the permit by priority, due time and id: the format of these, of one
-- length before the id, and the last time that this length has room for.
local PARKED, LAST_DUE = '%010.0f%016.0f%s', 2 ^ 53

-- Likewise a job that a strike holds, among those of the strike's mark.
local function leave_parked(base, job)
  local record, of, lists, key = base .. ':j:' .. job.id, job.permit, base .. ':parks', base .. ':parked:'
  if job.hold == 'struck' then
    of, lists, key = redis.call('HGET', record, 'limit') or '', base .. ':struck', base .. ':struck:'
  end
  key = key .. of
  redis.call('ZREM', key, string.format(PARKED, job.priority + 2 ^ 31, math.min(job.run_at, LAST_DUE), job.id))
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', lists, of)
    redis.call('ZREM', base .. ':turns', of)
  end
  redis.call('HDEL', record, 'hold')
  job.hold = nil
end
