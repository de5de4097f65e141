-- Stores new jobs: planned first, then written. Used with jobs, lists, queues, locators, admission,
-- planning and inserting.
--
-- A request: { queue, default settings (JSON), locators, jobs, duplicates, expected, names, marks,
-- links, templates }. What jobs have in common stands once, in their template; see job_rows.py.
-- locators is a list of { hash, ids, known }, empty when another step has written them; marks then
-- has the mark of each job's, false for one whose locator is written later. names is the set of all
-- queues; or, where that lies elsewhere, whether this one has been added. duplicates counts what was dropped before. expected:
-- what a step before has found for each job, so that another one stores nothing; else false. links: of children in this queue, or in others of the same step, with parents in
-- this one; see linking.lua.
-- An answer: { verdict, { { word, id } .. } }, see enqueue.py.

local function note_unlocated(base, index, id, marks)
  if marks[index] == false then
    redis.call('ZADD', base .. ':unlocated', 0, id)
  end
end

local function store_planned(base, request)
  local fresh, replacing = {}, request.plan.replacing
  local duplicates = request[5] + #replacing
  for index, job in ipairs(request.plan.jobs) do
    if job.is_new then
      fresh[#fresh + 1] = job
      note_unlocated(base, index, job.id, request[8])
    elseif request.plan.words[index][1] == 'duplicate' then
      duplicates = duplicates + 1
    end
  end
  if #fresh > 0 then
    if not has_queue(base) then
      if type(request[7]) == 'string' then
        redis.call('SADD', request[7], request[1])
      end
      ensure_queue(base, cjson.decode(request[2]))
    end
    put_locators(request[1], request[3])
    insert_all(base, fresh)
    count('enqueued', '', #fresh)
  end
  if replacing[1] then
    write_replacements(base, replacing)
  end
  if duplicates > 0 then
    count('deduplicated', '', duplicates)
  end
  write_links(base, request[9])
  return stored(request.plan)
end

-- Plans and stores the jobs of one request.
local function store_jobs(base, request)
  return plan_jobs(base, request) or store_planned(base, request)
end
