-- Stores new jobs: planned first, then written. Used with jobs, lists, queues, locators, admission,
-- planning, sequences and inserting.
--
-- The fields of a request are in requests.py. The values that jobs have in common stand once, in
-- their template. locators is a list of { hash, ids, known }, empty when another step has written
-- them. Then marks has the mark of each job's locator, false for a locator that is written later.
-- names is the set of all queues, or, where that lies elsewhere, whether this queue has been added.
-- expected has the findings of a step before for each job, else false: with other findings nothing
-- is stored. links are of children in this queue, or in others of the same step, with parents in this
-- queue. See linking.lua. Expired jobs that held a key of a request end first.
-- An answer: { verdict, { { word, id } .. } }, see enqueue.py.

local function store_planned(base, request)
  local fresh, links, replacing, is_in_line = {}, {}, request.plan.replacing, false
  local duplicates = #replacing
  for index, job in ipairs(request.plan.jobs) do
    if job.is_new then
      fresh[#fresh + 1] = job
      is_in_line = is_in_line or job.sequence
      if request[ENQUEUE.marks][index] == false then
        redis.call('ZADD', base .. ':unlocated', 0, job.id)
      end
    elseif request.plan.words[index][1] == 'duplicate' then
      duplicates = duplicates + 1
    end
  end
  if request.plan.expired[1] then
    end_waiting(base, request.plan.expired, 'expired')
  end
  if #fresh > 0 then
    if not has_queue(base) then
      if type(request[ENQUEUE.names]) == 'string' then
        redis.call('SADD', request[ENQUEUE.names], request[ENQUEUE.queue])
      end
      ensure_queue(base, cjson.decode(request[ENQUEUE.defaults]))
    end
    put_locators(request[ENQUEUE.queue], request[ENQUEUE.locators])
    if is_in_line then
      links = put_in_line(base, fresh)
    end
    insert_all(base, fresh)
    write_links(base, links)
    count('enqueued', '', #fresh)
  end
  if replacing[1] then
    write_replacements(base, replacing)
  end
  if duplicates > 0 then
    count('deduplicated', '', duplicates)
  end
  write_links(base, request[ENQUEUE.links])
  -- A job that waits for others is held before the run. Ends come last, when children are known.
  for _, job in ipairs(fresh) do
    if job.struck and (job.struck[2] or not job.parents) then
      local mark, template, key = job.struck[1], job.template, base .. ':j:' .. job.id
      redis.call('HSET', key, 'limit', mark, 'cause', 'struck', 'more', '1')
      if not job.parents then
        local place = string.format(PARKED, template.priority + 2 ^ 31, math.min(template.due, LAST_DUE), job.id)
        redis.call('ZADD', base .. ':struck', 0, mark)
        redis.call('ZADD', base .. ':struck:' .. mark, 0, place)
        redis.call('HSET', key, 'hold', 'struck')
      end
      if job.struck[2] then
        redis.call('RPUSH', base .. ':err:' .. job.id, now_text .. ' ' .. job.struck[2])
        end_waiting(base, { job.id }, 'struck')
      else
        count('struck')
      end
    end
  end
  return stored(request.plan)
end

-- Plans and stores the jobs of one request.
local function store_jobs(base, request)
  return plan_jobs(base, request) or store_planned(base, request)
end
