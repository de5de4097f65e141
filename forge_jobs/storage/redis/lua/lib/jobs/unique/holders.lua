-- Finds the jobs that a request with a unique key meets. Writes nothing. Used with jobs, places.
--
-- Modes other than keep and error come with the request. String 'merged:<id>': the job that has the content
-- of the request with this id, and until when that is known. String 'cool:<key>': the job that opened the
-- window of the key, when, and until when. Both end by themselves.
local REPLACES = { replace = true, debounce = true, ['keep-last'] = true }
local CHANGEABLE = { blocked = true, pending = true, failed = true }
local FOLLOWS = { debounce = true, ['keep-last'] = true }

local function look(base, holder)
  local status = read_fields(base .. ':j:' .. holder.id, 'status')[1]
  holder.status, holder.is_known = status or '', true
  holder.follows = status == 'blocked' and is_following(holder.place)
end

-- The jobs that hold the key of a request, those of the same call too: of two the follow-up is last.
local function holders_of(base, job, call)
  local held = call.held[job.key]
  if not held then
    local places = places_of(job.key)
    held = {}
    for index, id in ipairs(ids_at(base, places)) do
      if id then
        held[#held + 1] = { id = id, place = places[index] }
      end
    end
    call.held[job.key] = held
  end
  for _, holder in ipairs((REPLACES[job.mode] or held[2]) and held or {}) do
    if not holder.is_known then
      look(base, holder)
    end
  end
  if held[2] and held[1].follows then
    held[1], held[2] = held[2], held[1]
  end
  return held
end

-- A job that a strike cancels ends with the call, so the key is free. A window that the job opens lasts.
local function accept(job, call, place, status)
  local held, follows = call.held[job.key], job.follows ~= nil
  call.accepted[job.id] = job
  if job.struck and job.struck[2] then
    held.opener = job.mode == 'cooldown' and job.id or held.opener
  else
    held[#held + 1] = { id = job.id, place = place, status = status, follows = follows, is_known = true }
  end
end

-- The job that has the content of the request already, nil for none.
local function merged_into(base, job, call)
  local into = call.merged[job.id]
  if not into then
    local noted = read_record('GET', base .. ':merged:' .. job.id)
    local id, ends = string.match(noted or '', '^(%S+) (%d+)$')
    into = id and tonumber(ends) > now and id or nil
  end
  return into
end

-- The job that opened a window which still lasts. One that opens in the future was written before the
-- clock went back.
local function cooling_down(base, key)
  local noted = read_record('GET', base .. ':cool:' .. key)
  local id, opened, ends = string.match(noted or '', '^(%S+) (%d+) (%d+)$')
  return id and tonumber(opened) <= now and now < tonumber(ends) and id
end

-- Returns whether a job waits for the holder of the job's key. The request of a job of the same call says
-- so.
local function is_follow_up(base, id, call)
  local accepted = call.accepted[id]
  if accepted then
    return accepted.follows ~= nil
  end
  local status, place = unpack(read_fields(base .. ':j:' .. id, 'status', 'key'))
  return status == 'blocked' and is_following(place) and not call.expired[id]
end
