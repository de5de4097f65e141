-- A queue's own record.
--
-- Hash 'queue': max_workers, paused (since when), cooldown_until, cooldown_level, cooldown_quiet,
-- keep_done, keep_dead, keep_cancelled (microseconds), version (of the allocation), kinds_version,
-- handover_seq, dead_letter (a queue's name), objective (a text, opaque here). cooldown, retention, retry and
-- declared (all that code declared last) are JSON, opaque here.
-- set_<setting> ('1') marks a setting that an operator has set. waits: until when callers wait for jobs,
-- see wakes.

-- In the order of config/queues.py.
local STATE = {
  'max_workers', 'cooldown', 'retention', 'retry', 'paused', 'cooldown_until', 'cooldown_level',
  'set_max_workers', 'set_cooldown', 'set_retention', 'set_retry', 'dead_letter', 'set_dead_letter',
  'objective', 'set_objective',
}

local function has_queue(base)
  local workers, waits = unpack(redis.call('HMGET', base .. ':queue', 'max_workers', 'waits'))
  waits_of[base] = waits
  return workers and true or false
end

-- Creates the queue when there is none. settings: field, value, field, value ...
local function ensure_queue(base, settings)
  if not has_queue(base) then
    redis.call('HSET', base .. ':queue', unpack(settings))
    -- A caller that waits for a queue that is not there could not say so.
    note_waiting(base)
    waits_of[base] = nil
  end
end

-- Returns the time and the record, '' for what is not set, nil when there is no such queue.
local function queue_state(base)
  local values = redis.call('HMGET', base .. ':queue', unpack(STATE))
  if not values[1] then
    return nil
  end
  local state = { now }
  for index in ipairs(STATE) do
    state[index + 1] = values[index] or ''
  end
  return state
end

-- Returns the most workers, one where the number cannot be read.
local function most_workers(stored)
  local number = whole(stored, -1)
  return number >= 0 and number <= 100000 and number or 1
end

-- Notes that the allocation of the queue is being written.
local function move_version(base)
  add_up(base .. ':queue', 'version', 1)
end

-- Pauses the queue after the upstream throttled. Keeps the later end and the higher level. A level that the
-- queue's quiet time has outlived does not count any more.
local function start_cooldown(base, length, level)
  local key = base .. ':queue'
  local values = redis.call('HMGET', key, 'cooldown_until', 'cooldown_level', 'cooldown_quiet')
  local before = whole(values[1], 0)
  if now < before + whole(values[3], 0) then
    level = math.max(level, whole(values[2], 0))
  end
  local ends = math.max(before, now + length)
  redis.call('HSET', key, 'cooldown_until', ends, 'cooldown_level', level)
end
