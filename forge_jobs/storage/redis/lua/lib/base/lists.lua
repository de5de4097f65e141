-- The indexes behind lists and bulk operations: zsets of ids, all of score 0, so in order of id. A job is
-- in the list of the status, or in 'claimed', and in one list for each thing that finds the job. Used with
-- jobs.lua, whose set_status keeps the lists of the status afterwards.

-- Returns the keys of the lists that are not by status or unique key. The job needs kind, tags, schedule.
local function shared_lists(base, job)
  local keys = { base .. ':kind:' .. job.kind }
  if job.schedule then
    keys[#keys + 1] = base .. ':schedule:' .. job.schedule
  end
  for tag in string.gmatch(job.tags or '', '[^\n]+') do
    keys[#keys + 1] = base .. ':tag:' .. tag
  end
  return keys
end

-- The keys of all lists that the job is in.
local function lists_of(base, job)
  local keys = shared_lists(base, job)
  keys[#keys + 1] = base .. ':s:' .. job.status
  if job.key then
    keys[#keys + 1] = base .. ':key:' .. job.key
  end
  if job.group then
    keys[#keys + 1] = base .. ':group:' .. job.group
  end
  return keys
end

local function remove_from_lists(base, job)
  for _, key in ipairs(lists_of(base, job)) do
    redis.call('ZREM', key, job.id)
  end
end
