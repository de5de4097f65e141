-- Brings jobs of one record of the outbox to their queue, once. The outcome of each is noted in the same
-- step, and a repeat answers by the note. A request: { number of the record, request of `enqueue` }. The
-- note: { stored, dropped as duplicates, id -> { word, id of the job that holds the key } }.
-- uses: jobs letters endings cancels lists queues locators foreign handing linking places holders meeting admission planning templates sequences replacing no_limits inserting storing

-- No reader of the record takes longer to come here, in milliseconds.
local REMEMBERED = 3600 * 1000

-- The words that count as fired. See meeting.lua.
local FIRED = { new = 1, ['new+'] = 1, replaced = 1, ['replaced+'] = 1 }

local function note_of(base, number)
  return base .. ':fired:' .. text(number)
end

-- Returns the outcomes of the jobs, nil when there is no note of them. A note under the number that knows
-- none of the jobs is of another record: the fleet has lost that record, and has given the number again.
local function noted(base, number, jobs)
  local packed = redis.call('GET', note_of(base, number))
  local by_id = packed and cmsgpack.unpack(packed)[3] or {}
  for _, fields in ipairs(jobs) do
    if by_id[fields[JOB.id]] then
      return by_id
    end
  end
end

check = function(base, request)
  local number, wanted = unpack(request)
  if not noted(base, number, wanted[ENQUEUE.jobs]) then
    return plan_jobs(base, wanted)
  end
end

local function remember(base, number, jobs, words)
  local note = { 0, 0, {} }
  for index, word in ipairs(words) do
    note[1] = note[1] + (FIRED[word[1]] or 0)
    note[2] = note[2] + (word[1] == 'duplicate' and 1 or 0)
    note[3][jobs[index][JOB.id]] = word
  end
  redis.call('SET', note_of(base, number), cmsgpack.pack(note), 'PX', REMEMBERED)
end

local function repeated(by_id, jobs)
  local words = {}
  for index, fields in ipairs(jobs) do
    words[index] = by_id[fields[JOB.id]] or { 'repeat', fields[JOB.id] }
  end
  return { 'stored', words }
end

local function handle(base, request)
  local number, wanted = unpack(request)
  local by_id = noted(base, number, wanted[ENQUEUE.jobs])
  if by_id then
    return repeated(by_id, wanted[ENQUEUE.jobs])
  end
  local answer = store_planned(base, wanted)
  remember(base, number, wanted[ENQUEUE.jobs], wanted.plan.words)
  return answer
end
