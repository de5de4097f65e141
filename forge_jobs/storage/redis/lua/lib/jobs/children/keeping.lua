-- Jobs of a sequence behind one that comes back and keeps its place. Used with edges, handing and ordering.

-- The next one waits for the end of the job, and no operator can release it beside the job.
local function no_longer_held(base, id)
  for _, child in ipairs(behind_in_line(base, id)) do
    local _, policy, seq = read_edge(base, child, id)
    if OF_SEQUENCES[policy] then
      write_edge(base, child, id, 'open', policy, seq)
    end
  end
end

-- By child and parent the edges of before, '' for none, of children that this call has put behind a parent.
local put = {}

local function put_behind(base, id, child)
  local job, state, of, seq = load(base, child), read_edge(base, child, id)
  local policy = of or sequence_of(job)
  local newest = whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
  if job.status == 'blocked' and not WAITS[state] then
    redis.call('HINCRBY', base .. ':j:' .. child, 'waits', 1)
    put[base .. child .. id] = state and string.format('%s %s %s', state, of, seq) or ''
  end
  write_edge(base, child, id, 'open', policy, math.max(newest, tonumber(seq or 0)))
  note_children(base, id, { child, base:match('{(.*)}') .. ' ' .. policy })
end

-- Takes a child back from behind a parent: by now another one is between the two.
local function put_back(base, id, child)
  local former, waits = put[base .. child .. id], base .. ':waits:' .. child
  if former then
    put[base .. child .. id] = nil
    redis.call('HINCRBY', base .. ':j:' .. child, 'waits', -1)
    if former == '' then
      redis.call('HDEL', waits, id)
      redis.call('HDEL', base .. ':kids:' .. id, child)
      redis.call('ZREM', base .. ':kin:' .. id, child .. ' ' .. base:match('{(.*)}'))
    else
      redis.call('HSET', waits, id, former)
    end
  end
end

-- Puts the next ones behind the job itself: who waits in between may be released, or go on without the job.
-- parents: the jobs that the job waits for. Those that were put there need not be waited for any more.
local function keep_behind(base, id, nexts, parents)
  for _, child in ipairs(nexts) do
    local state, policy = read_edge(base, child, id)
    if not (WAITS[state] and OF_SEQUENCES[policy]) then
      put_behind(base, id, child)
    end
    for _, parent in ipairs(parents) do
      put_back(base, parent, child)
    end
  end
end
