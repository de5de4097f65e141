-- Edges of sequences, whose parent ended while waiting. Used with jobs, edges, handing, linking, ordering and
-- waited.

-- An edge that has settled opens again: the job had come last, and so left its place behind that parent.
-- Ends of those parents that are on their way have no effect. places: jobs and states, in which the place of the
-- one behind which the job was ended, at that time. A job that had ended by then has no word about who held that
-- place, those behind the job have one: such an edge is held, and the job does not hear of that end.
local function come_after(base, job, places, at)
  local policy = job.sequence and sequence_of(job) or 'wait'
  local newest = whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
  local is_late = ENDED[job.status] and at and not was_before(at, job.finished or 0)
  for _, place in ipairs(places) do
    local before, held = place[1], is_late and place[2] == 'held'
    local state, of, seq = read_edge(base, job.id, before)
    local status = state and not WAITS[state] and redis.call('HGET', base .. ':j:' .. before, 'status')
    if before ~= job.id and (not state or status and status ~= 'done') then
      local link = { job.id, base:match('{(.*)}') .. ' ' .. (of or policy) }
      write_edge(base, job.id, before, held and 'held' or 'open', of or policy, math.max(newest, tonumber(seq or 0)))
      if job.status == 'blocked' then
        redis.call('HINCRBY', base .. ':j:' .. job.id, 'waits', 1)
      end
      if not held then
        write_link(base, before, 'told', { link })
      elseif redis.call('EXISTS', base .. ':j:' .. before) == 1 then
        note_children(base, before, link)
      end
    end
  end
end

-- The child comes to wait for what the parent waited for at the end, so that none overtakes those before. What
-- holds a parent that holds the child is left there: otherwise each job of a stopped sequence, the jobs of which
-- are cancelled, would come to wait for all before.
local function inherit(base, job, parent, policy, holds)
  local found = {}
  for _, place in ipairs(OF_SEQUENCES[policy] and waited_for(base, parent, {}, 0) or {}) do
    if not (holds and place[2] == 'held') then
      found[#found + 1] = place
    end
  end
  if found[1] then
    come_after(base, job, found, select(2, end_of(base, parent)))
  end
end
