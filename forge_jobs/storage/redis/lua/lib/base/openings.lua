-- Lets jobs on hold be ready when others of their permit have gone. Goes with permits.lua.

-- Permits of which claims or ready jobs have gone, with their numbers.
local freed_permits = {}

-- The jobs that are ready since.
local made_ready = {}

-- So many jobs of a permit become ready in one step.
local MOST_OPENED = 200

local OF_PARKED = { 'hold', 'permit', 'kind', 'priority', 'run_at', 'crashes', 'expires' }

-- Lets the first jobs of a permit be ready, at most `wanted` and as many as there is room. Expired ones do
-- not count. Of a limit with a share the jobs stay on hold, and the permit has a turn in a claim: see
-- turning.lua. Returns how many are ready, and whether more may follow.
local function open_permit(base, permit, wanted)
  local key, number, left = base .. ':parked:' .. permit, 0, MOST_OPENED
  local first = redis.call('ZRANGE', key, 0, 0)[1]
  local room, share = 0, nil
  if first then
    room, share = room_of(base, permit)
  end
  if share and room > 0 and redis.call('ZADD', base .. ':turns', 'NX', now_text, permit) == 1 then
    made_ready[permit] = true
  end
  wanted = share and 0 or math.min(wanted, room)
  while first and number < wanted and left > 0 do
    redis.call('ZREM', key, first)
    local id = string.sub(first, 27)
    local record = base .. ':j:' .. id
    local hold, of, kind, priority, run_at, crashes, expires =
      unpack(read_fields(record, unpack(OF_PARKED)))
    if hold == 'limit' and of == permit then
      local job = {
        id = id, kind = kind or '', priority = whole(priority, 0), run_at = whole(run_at, now),
        crashes = whole(crashes, 0),
      }
      if job.run_at > now then
        -- Jobs are put on hold when they are due: the clock has been set back since.
        job.run_at = now
        redis.call('HSET', record, 'run_at', now_text)
      end
      redis.call('HDEL', record, 'hold')
      add_ready(base, job)
      number = number + (whole(expires, math.huge) > now and 1 or 0)
      made_ready[id] = true
    end
    first, left = redis.call('ZRANGE', key, 0, 0)[1], left - 1
    if not first then
      redis.call('ZREM', base .. ':parks', permit)
    end
  end
  return number, first and number < wanted
end

-- Lets jobs be ready for those that have gone. With `may_claim` the script goes on with claims. Jobs that it
-- has claimed by the end wake no pod.
local function open_freed(base, may_claim)
  local permits = freed_permits
  freed_permits = {}
  local are_any = next(permits) and redis.call('EXISTS', base .. ':parks') == 1
  for permit, number in pairs(are_any and permits or {}) do
    open_permit(base, permit, number)
  end
  if next(made_ready) and not may_claim then
    made_ready = {}
    wake_queue(base)
  end
end

-- Notes that a job has gone out of the lines, or, with the id, that the claim of a job has ended.
local function free_permit(base, permit, id)
  if permit then
    freed_permits[permit], at_end = (freed_permits[permit] or 0) + 1, open_freed
    if id then
      redis.pcall('ZREM', base .. ':using:' .. permit, id)
    end
  end
end
