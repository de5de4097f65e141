-- allow-oom
-- Makes jobs due that were due when they became pending, by a clock that has been set back since. {
-- tolerance, limit, causes, score, id }: the first `limit` ready jobs behind (score, id), in the order of
-- due time and id, that are due later than now and the tolerance, are looked at. causes: name -> how far
-- ahead of now a job of that cause lies at least, when the job was due when stored. Answers how many jobs
-- were made due, whether there are more to look at, and score and id of the last one.
-- uses: jobs ready ahead
local function comes_before(a, b)
  return a[2] < b[2] or (a[2] == b[2] and is_before(a[1], b[1]))
end

-- Returns the ready jobs behind (score, id) in the lines, earliest first. Then the last job that was read
-- of the line that was read least far, nil when all lines were read to their ends.
local function next_jobs(base, score, after, limit)
  local found, bound = {}, nil
  for _, line in ipairs(all_lines(base)) do
    local listed = redis.call(
      'ZRANGE', base .. ':ready:' .. line, text(score), '+inf', 'BYSCORE', 'LIMIT', 0, limit,
      'WITHSCORES'
    )
    local last
    for index = 1, #listed, 2 do
      last = { listed[index], tonumber(listed[index + 1]), line }
      if last[2] > score or is_before(after, last[1]) then
        found[#found + 1] = last
      end
    end
    if #listed == 2 * limit and not (bound and comes_before(bound, last)) then
      bound = last
    end
  end
  table.sort(found, comes_before)
  return found, bound
end

local function handle(base, request)
  local tolerance, limit, causes, score, after = unpack(request)
  local are_turns_left = bring_back_turns(base, tolerance)
  local moved = {}
  local found, bound = next_jobs(base, math.max(score, now + tolerance + 1), after, limit)
  local last
  for index = 1, math.min(#found, limit) do
    if bound and comes_before(bound, found[index]) then
      break
    end
    last = found[index]
    if was_due(base, last[1], causes) then
      moved[#moved + 1] = last
    end
  end
  -- Due times a microsecond apart keep the order.
  for place, job in ipairs(moved) do
    local run_at = now - #moved + place
    redis.call('HSET', base .. ':j:' .. job[1], 'run_at', run_at)
    redis.call('ZADD', base .. ':ready:' .. job[3], run_at, job[1])
    redis.call('ZADD', base .. ':lines', 'LT', line_score(parse_line(job[3]).priority, run_at), job[3])
  end
  if #moved > 0 then
    wake_queue(base)
  end
  if not last and bound then
    return { 0, true, bound[2] + 1, '' } -- More jobs of one instant than are looked at.
  end
  local is_more = bound ~= nil or #found > limit or are_turns_left
  return { #moved, is_more, last and last[2] or score, last and last[1] or after }
end
