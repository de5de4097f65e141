-- Stores new jobs: planned first, then written. Used with jobs, lists, queues, locators, admission,
-- planning and inserting.
--
-- A request: { queue, default settings (JSON), locators, jobs, duplicates, is_strict, names, marks,
-- links, templates }. What jobs have in common stands once, in their template; see codec.py.
-- locators is a list of { hash, ids, known }, empty when another step has written them; marks then
-- has the mark of each job's. names is the set of all queues, false when another step has
-- added this one. duplicates counts what was dropped before. A strict request stores each job it
-- brings, or nothing. links: of children in this queue, or in others of the same step, with parents in
-- this one; see linking.lua.
-- An answer: { verdict, { { word, id } .. } }, see enqueue.py.

local function store_planned(base, request)
  local fresh = {}
  local duplicates = request[5]
  for index, job in ipairs(request.plan.jobs) do
    if job.is_new then
      fresh[#fresh + 1] = job
    elseif request.plan.words[index][1] == 'duplicate' then
      duplicates = duplicates + 1
    end
  end
  if #fresh > 0 then
    if not has_queue(base) then
      if request[7] then
        redis.call('SADD', request[7], request[1])
      end
      ensure_queue(base, cjson.decode(request[2]))
    end
    put_locators(request[1], request[3])
    insert_all(base, fresh)
    count('enqueued', '', #fresh)
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
