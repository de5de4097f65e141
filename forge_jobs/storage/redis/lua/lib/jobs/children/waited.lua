-- The places that jobs of a sequence had in line when they ended. Used with jobs, edges and ordering.
--
-- Ends are handed over some time after they come, in any order. So the edges of a job that ended while waiting
-- do not say alone what the job waited for: the job before may have ended earlier, and by the word of this job
-- that end is passed.

-- So many jobs are passed one behind the other. Those before tell the others by handovers.
local FAR = 100

local PASSING = {
  continue = true, continue_in_line = true, skip = true, note = true, note_in_line = true,
}

-- Returns whether an edge of that policy is passed once the parent has ended so. See model.edges.
local function is_passed(policy, status)
  return status == 'done' or PASSING[policy] or policy == 'wait' and status == 'cancelled'
end

-- Returns status and time of the end of a job. The time is nil of a job that has yet to end.
local function end_of(base, id)
  local status, at = unpack(redis.call('HMGET', base .. ':j:' .. id, 'status', 'finished'))
  return status, ENDED[status] and whole(at, 0) or nil
end

-- Returns whether an end came before that of a job which was waiting. Both are times, nil for not yet. Of ends at
-- one moment none has passed the other.
local function was_before(at, ended_at)
  return at and (not ended_at or at < ended_at)
end

-- Returns the jobs that a job waited for when it ended, or waits for, with the states of the edges: { id, state }.
-- known: those of jobs that were looked at.
local function waited_for(base, id, known, depth)
  if known[id] then
    return known[id]
  end
  local found, seen, ahead, index = {}, { [id] = true }, {}, 1
  known[id] = found
  for _, parent in ipairs(before_in_line(base, id)) do
    ahead[#ahead + 1] = { parent, read_edge(base, id, parent) }
  end
  local ended_at = ahead[1] and select(2, end_of(base, id))
  while ahead[index] do
    local parent, state, policy = unpack(ahead[index])
    local status, at = end_of(base, parent)
    if not seen[parent] and (state == 'held' or depth == FAR or not was_before(at, ended_at)) then
      found[#found + 1] = { parent, state }
    elseif not seen[parent] then
      local holds = not is_passed(policy, status)
      if holds then
        found[#found + 1] = { parent, 'held' }
      end
      local rule = string.match(redis.call('HGET', base .. ':j:' .. id, 'sequence') or '', '^%S+') or 'wait'
      for _, each in ipairs(status ~= 'done' and waited_for(base, parent, known, depth + 1) or {}) do
        if not (holds and each[2] == 'held') then
          ahead[#ahead + 1] = { each[1], 'open', rule }
        end
      end
    end
    seen[parent], index = true, index + 1
  end
  return found
end
