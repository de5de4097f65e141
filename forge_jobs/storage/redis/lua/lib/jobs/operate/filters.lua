-- Matches jobs with a filter. A filter comes as { kinds, statuses, causes, tag, key, schedule, enqueued
-- before, enqueued from, terms }. A part that is not set is false, or empty when the part is a list. Used
-- with terms.

local FILTERED = { 'status', 'kind', 'cause', 'key', 'schedule', 'tags', 'enqueued' }

-- The same and those that terms are about.
local FURTHER = {
  'status', 'kind', 'cause', 'key', 'schedule', 'tags', 'enqueued', 'host', 'attempt', 'crashes',
  'started', 'finished', 'run_at',
}

local function set_of(list)
  local set = {}
  for _, value in ipairs(list) do
    set[value] = true
  end
  return #list > 0 and set
end

local function read_filter(parts)
  local kinds, statuses, causes, tag, key, schedule, before, from, terms = unpack(parts)
  return {
    kinds = kinds, statuses = statuses, tag = tag, key = key, schedule = schedule,
    before = before, from = from,
    terms = terms, is_kind = set_of(kinds), is_status = set_of(statuses), is_cause = set_of(causes),
  }
end

-- job needs the fields of FILTERED
local function is_meant(filter, job)
  return (not filter.is_status or filter.is_status[job.status])
    and (not filter.is_kind or filter.is_kind[job.kind])
    and (not filter.is_cause or filter.is_cause[job.cause])
    and (not filter.key or filter.key == key_of(job.key))
    and (not filter.schedule or filter.schedule == job.schedule)
    and (not filter.tag or is_tagged(job.tags, filter.tag))
    and (not filter.before or job.enqueued < filter.before)
    and (not filter.from or job.enqueued >= filter.from)
    and (#filter.terms == 0 or meets_all(filter.terms, job))
end

-- Returns whether the job exists and is meant.
local function matches(base, filter, id)
  local fields = #filter.terms > 0 and FURTHER or FILTERED
  local values = read_fields(base .. ':j:' .. id, unpack(fields))
  if not values[1] then
    return false
  end
  local job = { id = id }
  for index, field in ipairs(fields) do
    job[field] = values[index] or nil
  end
  job.enqueued = whole(job.enqueued, 0)
  return is_meant(filter, job)
end
