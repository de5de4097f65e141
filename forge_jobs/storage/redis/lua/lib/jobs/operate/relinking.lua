-- New edges of jobs that wait again, by a plan: { refusal or false, { { parent, edge, the edge from now on }
-- .. }, how many children were asked (0: any number), the number of the newest end that has no effect any
-- more on children }. Used with jobs, edges, handing and requeueing.

-- Returns whether children may know of an end that the plan does not know, also of one on the way to them.
local function may_know(base, job, kin, seq)
  return kin > 0 and read_record('ZCARD', base .. ':kin:' .. job.id) ~= kin
    or job.kids and has_newer_end(base, job.id, seq)
end

-- Returns why the job does not wait again by the plan, and its edges. 'again': the job is not as planned.
-- false: no reason.
local function checked(base, job, plan)
  local waits = base .. ':waits:' .. job.id
  local why, edges, kin, seq = unpack(plan)
  if read_record('HLEN', waits) ~= #edges then
    return read_record('HLEN', waits) and 'again' or 'silent'
  end
  local parents, expects = {}, {}
  for index, edge in ipairs(edges) do
    local parent, expected = unpack(edge)
    parents[index], expects[index] = parent, expected
  end
  for first = 1, #parents, 400 do
    local last = math.min(first + 399, #parents)
    for offset, found in ipairs(redis.call('HMGET', waits, unpack(parents, first, last))) do
      if found ~= expects[first + offset - 1] then
        return 'again'
      end
    end
  end
  if not why and may_know(base, job, kin, seq) then
    return 'again'
  end
  return why, edges
end

-- Jobs without a plan have no edges.
local function plan_of(base, job, plan)
  return checked(base, job, plan or { false, {}, 0, 0 })
end

-- Writes the edges. Returns how many have not settled.
local function relink(base, job, edges)
  local open, flat = 0, {}
  for _, edge in ipairs(edges) do
    local parent, _, after = unpack(edge)
    flat[#flat + 1], flat[#flat + 2] = parent, after
    open = open + (WAITS[parse_edge(after)] and 1 or 0)
  end
  call_many('HSET', base .. ':waits:' .. job.id, flat)
  return open
end

-- Lists a job again that waits from now on, with the key.
local function wait_again(base, job)
  if job.key then
    redis.call('HSET', base .. ':unique', job.key, job.id)
  end
  start_waiting(base, job)
  if job.kids then
    withdraw_handovers(base, job.id)
  end
end

-- Changes a job by its plan: change(base, job, edges), and an event. Answers as a verb does.
local function follow_plan(base, job, plan, change, event)
  if is_key_taken(base, job) then
    return 'key_taken'
  end
  local why, edges = plan_of(base, job, plan)
  if why then
    return why
  end
  change(base, job, edges)
  append_event(base, now, event, job.id, '', '')
  count(event)
  return 'changed'
end
