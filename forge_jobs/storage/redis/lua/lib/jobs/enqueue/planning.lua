-- Decides on the jobs of one request. See storing.lua. Writes nothing.

local REFUSALS = { other = true, held = true, again = true }
local NEW = { new = true, ['new+'] = true }

-- Returns whether one of the jobs may not be stored here since the locator was written: the job has been
-- taken to another queue, or the locator has been taken away.
local function is_barred(base, request)
  local barred, marks = base .. ':barred', request[ENQUEUE.marks]
  if #marks == 0 or redis.call('EXISTS', barred) == 0 then
    return false
  end
  for index, fields in ipairs(request[ENQUEUE.jobs]) do
    if marks[index] and marks[index] <= tonumber(redis.call('ZSCORE', barred, fields[JOB.id]) or 0) then
      return true
    end
  end
  return false
end

-- Returns whether a step before has found something else: { word, id }. A repeat may have come since.
local function is_overtaken(expected, word, id)
  return expected and not string.find(word, '^repeat') and (expected[1] ~= word or expected[2] ~= id)
end

-- Plans the jobs in request.plan. Returns the whole answer when the answer is a refusal.
local function plan_jobs(base, request)
  local elsewhere, any = foreign_locators(request[ENQUEUE.queue], request[ENQUEUE.locators])
  if not elsewhere then
    return { 'moved', {} }
  elseif #elsewhere > 0 then
    return { 'elsewhere', elsewhere }
  elseif is_barred(base, request) then
    return { 'again', {} }
  elseif request[ENQUEUE.names] == false and not has_queue(base) then
    return { 'unlisted', { { request[ENQUEUE.queue], '' } } }
  end
  local missing = missing_parents(base, request[ENQUEUE.links])
  if #missing > 0 then
    return { 'missing', missing }
  end
  -- A stored job has a locator. Where another step has written the locators, there is one in any case.
  any = any or #request[ENQUEUE.locators] == 0 and is_any_stored(base, request[ENQUEUE.jobs])
  local plan = { jobs = {}, words = {}, all_new = true, replacing = {}, expired = {} }
  local call = { accepted = {}, held = {}, merged = {}, replacing = plan.replacing, expired = plan.expired, may_be_stored = any }
  local templates = {}
  for number, fields in ipairs(request[ENQUEUE.templates]) do
    templates[number] = to_template(fields)
  end
  for index, fields in ipairs(request[ENQUEUE.jobs]) do
    local job = to_job(fields, templates)
    local word, id = admit(base, job, call)
    if REFUSALS[word] then
      return { word, { { job.key or '', word == 'held' and id or job.id } } }
    elseif is_overtaken(request[ENQUEUE.expected] and request[ENQUEUE.expected][index], word, id) then
      return { 'again', {} }
    end
    job.is_new = NEW[word]
    plan.all_new = plan.all_new and word == 'new'
    plan.jobs[index], plan.words[index] = job, { word, id }
  end
  request.plan = plan
end

-- The answer when all is stored: nothing more needs to be said of jobs that are all new.
local function stored(plan)
  return { 'stored', plan.all_new and {} or plan.words }
end
