-- Jobs of a sequence behind one that comes back and keeps its place. Used with edges, handing and ordering.

local function put_behind(base, id, child)
  local job, state, of, seq = load(base, child), read_edge(base, child, id)
  local policy = of or sequence_of(job)
  local newest = whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
  write_edge(base, child, id, 'open', policy, math.max(newest, tonumber(seq or 0)))
  if job.status == 'blocked' and not WAITS[state] then
    redis.call('HINCRBY', base .. ':j:' .. child, 'waits', 1)
  end
  note_children(base, id, { child, base:match('{(.*)}') .. ' ' .. policy })
end

-- Puts the next ones behind the job itself: who waits in between may be released, or go on without the job.
local function keep_behind(base, id, nexts)
  for _, child in ipairs(nexts) do
    local state, policy = read_edge(base, child, id)
    if not (WAITS[state] and OF_SEQUENCES[policy]) then
      put_behind(base, id, child)
    end
  end
end
