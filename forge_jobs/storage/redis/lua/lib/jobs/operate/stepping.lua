-- A step of an action in this queue. step: ACTION in requests.py. Used with visits.lua.
--
-- Hash 'act:<id>': state, cursor, changed, requested, 'r:<refusal>' each with a number of jobs.

local function is_next(base, step)
  local state, cursor = unpack(redis.call('HMGET', base .. ':act:' .. step[ACTION.id], 'state', 'cursor'))
  return state == 'running' and cursor == step[ACTION.cursor]
end

local function note_outcomes(base, id, outcomes, seconds)
  local key, met = base .. ':act:' .. id, {}
  for _, outcome in ipairs(outcomes) do
    local job, what = unpack(outcome)
    if what == 'changed' or what == 'requested' then
      redis.call('HINCRBY', key, what, 1)
      met[#met + 1] = job
    elseif what ~= 'not_found' then
      redis.call('HINCRBY', key, 'r:' .. what, 1)
    end
  end
  if #met > 0 then
    redis.call('RPUSH', base .. ':acted:' .. id, unpack(met))
    redis.call('PEXPIRE', base .. ':acted:' .. id, seconds * 1000)
  end
end

-- last: the last job of a step that ended early, false when all of its jobs were visited.
local function advance(base, step, outcomes, last)
  local id, to = step[ACTION.id], step[ACTION.to]
  note_outcomes(base, id, outcomes, step[ACTION.kept_for])
  if last or to ~= '' then
    redis.call('HSET', base .. ':act:' .. id, 'cursor', last or to)
  else
    redis.call('HSET', base .. ':act:' .. id, 'state', 'done')
  end
end

local function before(ids, id, cursor)
  for _, each in ipairs(ids) do
    if each == id then
      return cursor
    end
    cursor = each
  end
end

-- As visit. With a step the action is advanced, or the answer is { { '', 'moved' } }. When a job is to be
-- looked at again, the answer ends with { the last job before it, 'stopped' }.
local function visit_step(base, request, verb, of_none)
  local step = request[VISIT.step]
  if not step then
    return visit(base, request, verb, of_none)
  end
  if not is_next(base, step) then
    return { { '', 'moved' } }
  end
  local outcomes = visit(base, request, verb, of_none)
  local last, what = unpack(outcomes[#outcomes] or {})
  if what ~= 'again' then
    advance(base, step, outcomes, false)
    return outcomes
  end
  outcomes[#outcomes] = nil
  last = before(request[VISIT.ids], last, step[ACTION.cursor])
  advance(base, step, outcomes, last)
  outcomes[#outcomes + 1] = { last, 'stopped' }
  return outcomes
end
