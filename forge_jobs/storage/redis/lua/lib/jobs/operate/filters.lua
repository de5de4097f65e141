-- Matches jobs with a filter. A filter comes as { kinds, statuses, causes, tag, key, schedule, enqueued
-- before, enqueued from }. A part that is not set is false, or empty when the part is a list.

local FILTERED = { 'status', 'kind', 'cause', 'key', 'schedule', 'tags', 'enqueued' }

local function set_of(list)
  local set = {}
  for _, value in ipairs(list) do
    set[value] = true
  end
  return #list > 0 and set
end

local function read_filter(parts)
  local kinds, statuses, causes, tag, key, schedule, before, from = unpack(parts)
  return {
    kinds = kinds, statuses = statuses, tag = tag, key = key, schedule = schedule,
    before = before, from = from,
    is_kind = set_of(kinds), is_status = set_of(statuses), is_cause = set_of(causes),
  }
end

local function is_tagged(tags, tag)
  return tags ~= nil and string.find('\n' .. tags .. '\n', '\n' .. tag .. '\n', 1, true) ~= nil
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
end

-- Returns whether the job exists and is meant.
local function matches(base, filter, id)
  local values = read_fields(base .. ':j:' .. id, unpack(FILTERED))
  if not values[1] then
    return false
  end
  local job = {}
  for index, field in ipairs(FILTERED) do
    job[field] = values[index] or nil
  end
  job.enqueued = whole(job.enqueued, 0)
  return is_meant(filter, job)
end
