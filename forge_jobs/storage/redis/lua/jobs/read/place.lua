-- no-writes
-- How many due jobs come before a job in the order of claims: priority, due time, id. -1 for a job that
-- does not wait for a claim.
-- uses: jobs ready

-- How many jobs of a line come before: due at an earlier time, or at the same and with a lower id.
local function before_in_line(key, at, id)
  local from = redis.call('ZCOUNT', key, '-inf', '(' .. text(at))
  local to = redis.call('ZCOUNT', key, '-inf', text(at))
  while from < to do
    local middle = math.floor((from + to) / 2)
    if redis.call('ZRANGE', key, middle, middle)[1] < id then
      from = middle + 1
    else
      to = middle
    end
    spend(1)
  end
  return from
end

local function handle(base, request)
  local id = unpack(request)
  local job = load(base, id)
  if not job or job.hold or (job.status ~= 'pending' and job.status ~= 'failed') then
    return -1
  end
  local ahead = 0
  local lines = all_lines(base)
  spend(3 * #lines)
  for _, name in ipairs(lines) do
    local priority, key = parse_line(name).priority, base .. ':ready:' .. name
    if priority < job.priority or (priority == job.priority and job.run_at > now) then
      ahead = ahead + redis.call('ZCOUNT', key, '-inf', now_text)
    elseif priority == job.priority then
      ahead = ahead + before_in_line(key, job.run_at, id)
    end
  end
  return ahead
end
