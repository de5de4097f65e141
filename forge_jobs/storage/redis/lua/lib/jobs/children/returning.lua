-- Jobs of a sequence that wait again after they had ended. Used with keeping, ordering, walking and relinking.
-- See ADR 255.

-- Leaves the place of a job that is to come last. Returns how many edges have settled by that.
local function leave_place(base, id)
  local parents = before_in_line(base, id)
  for _, parent in ipairs(parents) do
    write_edge(base, id, parent, 'settled', select(2, read_edge(base, id, parent)))
  end
  return #parents
end

-- Waits for the jobs. Returns how many edges more have not settled.
local function wait_for(base, job, parents)
  local policy, added = sequence_of(job), 0
  for _, parent in ipairs(parents) do
    local state, of, seq = read_edge(base, job.id, parent)
    added = added + (WAITS[state] and 0 or 1)
    write_edge(base, job.id, parent, 'open', of or policy, seq or 0)
    write_link(base, parent, 'left', { { job.id, base:match('{(.*)}') .. ' ' .. (of or policy) } })
  end
  return added
end

-- By queue: walks ahead, walks behind by key, and by a job that has yet to end the one that came back last in
-- front. That one waits for all that the former waits for.
local returned = {}

local function returned_of(base, key)
  local known = returned[base] or { ahead = new_walk(before_in_line), behind = {}, in_front = {} }
  known.behind[key] = known.behind[key] or new_walk(behind_in_line, key)
  returned[base] = known
  return known
end

-- Notes that the job waits again, before the next ones.
local function note_return(known, key, id, nexts, next_one)
  forget(known.ahead, id)
  forget(known.behind[key], id)
  if known.behind[key].meets_others then
    -- Walks of other sequences may pass jobs of this one.
    known.behind = {}
  end
  for _, each in ipairs(nexts) do
    known.in_front[each] = nil
  end
  if next_one then
    known.in_front[next_one] = id
  end
end

-- Writes the edges of a job that waits again. Returns how many have not settled.
local function relink_in_line(base, job, edges)
  if not (job.sequence and ENDED[job.status]) then
    return relink(base, job, edges)
  end
  local id, _, key = job.id, sequence_of(job)
  local last, known = redis.call('HGET', base .. ':sequences', key) or id, returned_of(base, key)
  local nexts = reached(base, known.behind[key], behind_in_line(base, id))
  local next_one = first_of(base, nexts)
  local stays = last == id or next_one
  -- The next one may wait for jobs that have passed this job when that had ended.
  local front = known.in_front[next_one or '']
  local starts = front and { front } or stays and before_in_line(base, next_one or id) or { last }
  local parents = reached(base, known.ahead, starts)
  local open = relink(base, job, edges)
  no_longer_held(base, id)
  keep_behind(base, id, nexts, parents)
  open = open - (stays and 0 or leave_place(base, id))
  redis.call('HSET', base .. ':sequences', key, stays and last or id)
  note_return(known, key, id, nexts, next_one)
  return open + wait_for(base, job, parents)
end
