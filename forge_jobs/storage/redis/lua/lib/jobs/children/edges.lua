-- Edges: hash 'waits:<id>' of a child, parent -> 'state policy seq'. The states are those of the module
-- model.edges. seq is the number of the newest handover that counted, in the parent's queue, 0 for none.
-- The field 'waits' of a blocked job counts the edges that have not settled. Used with jobs.lua.

-- In these states the child waits. In all others the edge has settled.
local WAITS = { open = true, held = true }

-- Policies of edges of sequences. See OF_SEQUENCES in model.edges.
local OF_SEQUENCES = {
  wait = true, skip = true, stop = true,
  cancel_in_line = true, continue_in_line = true, hold_in_line = true, note_in_line = true,
}

-- Returns state, policy and seq, all texts, nil when there is no such edge.
local function parse_edge(value)
  if value then
    return string.match(value, '^(%S+) (%S+) (%d+)$')
  end
end

local function read_edge(base, id, parent)
  return parse_edge(read_record('HGET', base .. ':waits:' .. id, parent))
end

local function write_edge(base, id, parent, state, policy, seq)
  redis.call('HSET', base .. ':waits:' .. id, parent, state .. ' ' .. policy .. ' ' .. text(seq))
end

-- Parents and states in turn of the edges that have not settled.
local function unsettled(base, id)
  local flat, found = read_record('HGETALL', base .. ':waits:' .. id) or {}, {}
  for index = 1, #flat, 2 do
    local state = parse_edge(flat[index + 1])
    if WAITS[state] then
      found[#found + 1], found[#found + 2] = flat[index], state
    end
  end
  return found
end

-- Settles so many edges of a blocked job, which is pending when no edge is open any more. Less than 0: so
-- many are open again.
local function settle_edges(base, job, settled)
  local key = base .. ':j:' .. job.id
  if redis.call('HINCRBY', key, 'waits', 0 - settled) > 0 then
    return
  end
  set_status(base, job, 'pending')
  -- As text, because a time that a user gave may be too far away for an exact number.
  local run_at = (job.requested or 0) > now and redis.call('HGET', key, 'requested') or text(now)
  job.run_at = whole(run_at, now, FURTHEST)
  redis.call('HSET', key, 'status', 'pending', 'cause', 'parents_settled', 'run_at', run_at)
  start_waiting(base, job)
  count('parents_settled')
end
