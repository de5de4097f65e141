-- Jobs that are removed from their sequences. Used with jobs, edges, passing, ordering, waited and inheriting.

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
  local places, parents = {}, {}
  for _, place in ipairs(waited_for(base, job.id, {}, 0)) do
    if redis.call('EXISTS', base .. ':j:' .. place[1]) == 1 then
      places[#places + 1], parents[#parents + 1] = place, place[1]
    end
  end
  if parents[1] then
    for _, name in ipairs(read_record('ZRANGE', base .. ':kin:' .. job.id, 0, -1) or {}) do
      local child = load(base, string.match(name, '^%S+'))
      local state, policy = read_edge(base, child and child.id or '', job.id)
      if WAITS[state] and OF_SEQUENCES[policy] then
        come_after(base, child, places, job.finished or now)
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
