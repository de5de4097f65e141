-- Edges of sequences, whose parent ended while waiting, or is removed. Used with jobs, edges, handing, linking,
-- passing and ordering.

-- An edge that has settled opens again: the job had come last, and so left its place behind that parent.
-- Ends of those parents that are on their way have no effect.
local function come_after(base, job, parents)
  local policy = job.sequence and sequence_of(job) or 'wait'
  local newest = parents[1] and whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
  for _, before in ipairs(parents) do
    local state, of, seq = read_edge(base, job.id, before)
    local status = state and not WAITS[state] and redis.call('HGET', base .. ':j:' .. before, 'status')
    if before ~= job.id and (not state or status and status ~= 'done') then
      write_edge(base, job.id, before, 'open', of or policy, math.max(newest, tonumber(seq or 0)))
      if job.status == 'blocked' then
        redis.call('HINCRBY', base .. ':j:' .. job.id, 'waits', 1)
      end
      write_link(base, before, 'told', { { job.id, base:match('{(.*)}') .. ' ' .. (of or policy) } })
    end
  end
end

-- The child comes to wait for what the parent waited for, so that none overtakes those before. What holds a
-- parent that holds the child is left there: otherwise each job of a stopped sequence, the jobs of which are
-- cancelled, would come to wait for all before.
local function inherit(base, job, parent, policy, holds)
  local parents = {}
  for _, before in ipairs(OF_SEQUENCES[policy] and before_in_line(base, parent) or {}) do
    if not holds or read_edge(base, parent, before) ~= 'held' then
      parents[#parents + 1] = before
    end
  end
  come_after(base, job, parents)
end

-- Of jobs of a sequence those behind all that have yet to end, or all. One that has ended may have left the line.
local function behind_active(base, ids)
  if not ids[2] then
    return ids
  end
  local starts, found = {}, {}
  for index, id in ipairs(ids) do
    starts[index] = id
  end
  local newest = latest(base, active(base, starts, before_in_line))
  for _, id in ipairs(newest and ids or {}) do
    if id == newest or comes_after(base, id, { [newest] = true }) then
      found[#found + 1] = id
    end
  end
  return found[1] and found or ids
end

-- Takes a job that is being removed out of its sequence, while the children and edges of the job stand.
-- Those behind come to wait for what the job waited for, and so do those that are yet to come.
local function leave_line(base, job)
  local parents = {}
  for _, before in ipairs(before_in_line(base, job.id)) do
    if redis.call('EXISTS', base .. ':j:' .. before) == 1 then
      parents[#parents + 1] = before
    end
  end
  if parents[1] then
    for _, name in ipairs(read_record('ZRANGE', base .. ':kin:' .. job.id, 0, -1) or {}) do
      local child = load(base, string.match(name, '^%S+'))
      local state, policy = read_edge(base, child and child.id or '', job.id)
      if WAITS[state] and OF_SEQUENCES[policy] then
        come_after(base, child, parents)
      end
    end
  end
  local _, key = sequence_of(job)
  if redis.call('HGET', base .. ':sequences', key) == job.id then
    redis.call('HDEL', base .. ':sequences', key)
    if parents[1] then
      redis.call('HSET', base .. ':sequences', key, latest(base, behind_active(base, parents)))
    end
  end
end
