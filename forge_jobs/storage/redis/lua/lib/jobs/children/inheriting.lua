-- Edges of sequences, whose parent ended while waiting. Used with jobs, edges, handing, linking.
-- See OF_SEQUENCES in model.edges.
local OF_SEQUENCES = { wait = true, skip = true, stop = true }

-- The child comes to wait for what the parent waited for. Otherwise a cancelled job in the middle would let
-- the next one overtake those before.
local function inherit(base, job, parent, policy)
  local flat = OF_SEQUENCES[policy] and read_record('HGETALL', base .. ':waits:' .. parent) or {}
  for index = 1, #flat, 2 do
    local before, state, of = flat[index], parse_edge(flat[index + 1])
    if WAITS[state] and OF_SEQUENCES[of] and not read_edge(base, job.id, before) then
      write_edge(base, job.id, before, 'open', policy, 0)
      if job.status == 'blocked' then
        redis.call('HINCRBY', base .. ':j:' .. job.id, 'waits', 1)
      end
      write_link(base, before, 'told', { { job.id, base:match('{(.*)}') .. ' ' .. policy } })
    end
  end
end
