-- Jobs of a sequence behind one that comes back and keeps its place. Used with edges, handing and ordering.

-- Returns the first jobs from these on that have yet to end, by way of those that ended while waiting. key: by
-- way of jobs of other sequences too.
local function active(base, ahead, next_of, key)
  local seen, found = {}, {}
  while ahead[1] do
    local id = table.remove(ahead)
    local status, sequence = unpack(redis.call('HMGET', base .. ':j:' .. id, 'status', 'sequence'))
    local is_passed = ENDED[status] or key and key ~= string.match(sequence or '', '^%S+ (.*)$')
    if not seen[id] and is_passed then
      for _, each in ipairs(next_of(base, id)) do
        ahead[#ahead + 1] = each
      end
    elseif not seen[id] and status then
      found[#found + 1] = id
    end
    seen[id] = true
  end
  return found
end

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
