-- Jobs of a sequence that wait again after they had ended. Used with inheriting, keeping,
-- ordering and relinking. See ADR 255.

-- The next one waits for the end of the job, and no operator can release it beside the job.
local function no_longer_held(base, id)
  for _, child in ipairs(behind_in_line(base, id)) do
    local _, policy, seq = read_edge(base, child, id)
    if OF_SEQUENCES[policy] then
      write_edge(base, child, id, 'open', policy, seq)
    end
  end
end

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

-- Writes the edges of a job that waits again. Returns how many have not settled.
local function relink_in_line(base, job, edges)
  if not (job.sequence and ENDED[job.status]) then
    return relink(base, job, edges)
  end
  local id, _, key = job.id, sequence_of(job)
  local last = redis.call('HGET', base .. ':sequences', key) or id
  local nexts = active(base, behind_in_line(base, id), behind_in_line, key)
  local next_one = first_of(base, nexts)
  local stays = last == id or next_one
  -- The next one may wait for jobs that have passed this job when that had ended.
  local parents = active(base, stays and before_in_line(base, next_one or id) or { last }, before_in_line)
  local open = relink(base, job, edges)
  no_longer_held(base, id)
  keep_behind(base, id, nexts)
  open = open - (stays and 0 or leave_place(base, id))
  redis.call('HSET', base .. ':sequences', key, stays and last or id)
  return open + wait_for(base, job, parents)
end
