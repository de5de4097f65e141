-- Matches jobs with further terms of a filter: { name, whether excluded, values } or { name, sign, number,
-- whether that is an age }. Times and ages are microseconds. Terms about queues and texts do not come here.
-- Used with places.
local SIGNS = {
  ['<'] = function(one, other) return one < other end,
  ['<='] = function(one, other) return one <= other end,
  ['='] = function(one, other) return one == other end,
  ['>='] = function(one, other) return one >= other end,
  ['>'] = function(one, other) return one > other end,
}

local IN_LINE = { pending = true, failed = true }

local function is_tagged(tags, tag)
  return tags ~= nil and string.find('\n' .. tags .. '\n', '\n' .. tag .. '\n', 1, true) ~= nil
end

-- Returns the number that a term compares, nil where the job has none.
local function number_of(job, name)
  if name == 'due' then
    return IN_LINE[job.status] and whole(job.run_at) or nil
  elseif name == 'running' then
    return job.status == 'in_progress' and whole(job.started) or nil
  elseif name == 'finished' then
    return whole(job.finished)
  end
  return whole(job[name], 0)
end

local function has_value(job, name, value)
  if name == 'tag' then
    return is_tagged(job.tags, value)
  elseif name == 'key' then
    return key_of(job.key) == value
  end
  return (job[name == 'pod' and 'host' or name] or '') == value
end

local function meets(term, job)
  local name, how, of, is_age = unpack(term)
  if type(of) ~= 'table' then
    local number = number_of(job, name)
    return number ~= nil and SIGNS[how](is_age and now - number or number, of)
  end
  for _, value in ipairs(of) do
    if has_value(job, name, value) then
      return not how
    end
  end
  return how
end

-- job needs the fields of FURTHER
local function meets_all(terms, job)
  for _, term in ipairs(terms) do
    if not meets(term, job) then
      return false
    end
  end
  return true
end
