-- Does a verb of operators to each of the named jobs that the filter means. Used with jobs.lua,
-- filters.lua and seen.lua.

local WAITING = { blocked = true, pending = true, failed = true }

-- Returns why the verb refuses the job for the status alone. row: of REFUSED in
-- forge_jobs/model/filters.py.
local function refused_by(row, job)
  local by_status, unless = unpack(row)
  if not (job.hold and job.hold == unless) then
    return by_status[job.status]
  end
end

-- Answers { id, word } in turn: 'changed', 'requested' or a refusal. Jobs that the filter does not mean are
-- left out. request: VISIT in requests.py. verb(base, job) changes the job, or refuses before any change.
-- of_none(base, id) does so where no job is.
local function visit(base, request, verb, of_none)
  local filter = request[VISIT.filter] and read_filter(request[VISIT.filter])
  local row = request[VISIT.refused]
  local outcomes = {}
  for _, id in ipairs(request[VISIT.ids]) do
    local job = load(base, id)
    if not job then
      outcomes[#outcomes + 1] = { id, of_none and of_none(base, id) or 'not_found' }
    elseif (not filter or matches(base, filter, id)) and not has_changed(base, id, request[VISIT.seen]) then
      local refused = refused_by(row, job)
      outcomes[#outcomes + 1] = refused and { id, refused } or { id, verb(base, job) }
      if request[VISIT.step] and outcomes[#outcomes][2] == 'again' then
        -- A step goes past a job once.
        return outcomes
      end
    end
  end
  return outcomes
end
