-- Brings jobs of one record of the outbox to their queue, once: what became of them is noted in the
-- same step, and a repeat answers by the note. A request: { number of the record, request of
-- `enqueue` }. The note: { stored, dropped as duplicates, id -> { word, id it stands for } }.
-- uses: jobs lists queues locators admission planning templates inserting storing

-- Longer than anybody who read the record takes to come here, in milliseconds.
local REMEMBERED = 3600 * 1000

local function note_of(base, number)
  return base .. ':fired:' .. text(number)
end

check = function(base, request)
  if redis.call('EXISTS', note_of(base, request[1])) == 0 then
    return plan_jobs(base, request[2])
  end
end

local function remember(base, number, jobs, words)
  local note = { 0, 0, {} }
  for index, word in ipairs(words) do
    note[1] = note[1] + (word[1] == 'new' and 1 or 0)
    note[2] = note[2] + (word[1] == 'duplicate' and 1 or 0)
    note[3][jobs[index][1]] = word
  end
  redis.call('SET', note_of(base, number), cmsgpack.pack(note), 'PX', REMEMBERED)
end

local function repeated(packed, jobs)
  local by_id = cmsgpack.unpack(packed)[3]
  local words = {}
  for index, fields in ipairs(jobs) do
    words[index] = by_id[fields[1]] or { 'repeat', fields[1] }
  end
  return { 'stored', words }
end

local function handle(base, request)
  local number, wanted = unpack(request)
  local packed = redis.call('GET', note_of(base, number))
  if packed then
    return repeated(packed, wanted[4])
  end
  local answer = store_planned(base, wanted)
  remember(base, number, wanted[4], wanted.plan.words)
  return answer
end
