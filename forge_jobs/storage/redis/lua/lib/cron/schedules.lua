-- Schedules, and the jobs they have fired that are still to be brought to a queue.
--
-- Hash 'schedules': name -> msgpack of the FIELDS. next_at and last_fired_at are false when unset. Zset
-- 'due': schedules that fire by themselves, by next_at. Hash 'outbox': number -> msgpack of { name,
-- fired_at or false, jobs }, the jobs opaque. 'outbox_seq': the last number, which is that time or more. So
-- a fleet that lost the last writes gives no number again, as long as the clock goes on.

local FIELDS = {
  'spec', 'version', 'paused', 'edited', 'deleted', 'next_at', 'last_fired_at', 'fired', 'skipped',
  'error',
}
local UNSET = { '', 0, false, false, false, false, false, 0, 0, '' }
local INSTANTS = { next_at = true, last_fired_at = true }

local function fits(field, value, unset)
  if INSTANTS[field] and value then
    return type(value) == 'number' and whole(value)
  end
  return type(value) == type(unset) and (type(unset) ~= 'number' or whole(value))
end

-- Returns the schedule, deleted or not, nil when there is none. `spoilt` names the fields that cannot be
-- read, which are as in a new schedule.
local function load_schedule(base, name)
  local packed = redis.call('HGET', base .. ':schedules', name)
  if not packed then
    return nil
  end
  local is_read, values = pcall(cmsgpack.unpack, packed)
  values = is_read and type(values) == 'table' and values or {}
  local schedule, spoilt = { name = name }, {}
  for index, field in ipairs(FIELDS) do
    local value, unset = values[index], UNSET[index]
    local is_good = fits(field, value, unset)
    schedule[field] = is_good and value
    if not is_good then
      schedule[field] = unset
      spoilt[#spoilt + 1] = field
    end
  end
  schedule.spoilt = table.concat(spoilt, ', ')
  return schedule
end

-- As the next version.
local function store_schedule(base, schedule)
  schedule.version = schedule.version + 1
  local values = {}
  for index, field in ipairs(FIELDS) do
    values[index] = schedule[field]
  end
  redis.call('HSET', base .. ':schedules', schedule.name, cmsgpack.pack(values))
  local fires = schedule.next_at and not schedule.paused and schedule.error == ''
  if fires and not schedule.deleted then
    redis.call('ZADD', base .. ':due', schedule.next_at, schedule.name)
  else
    redis.call('ZREM', base .. ':due', schedule.name)
  end
end

-- Name, FIELDS and which of them are spoilt, for an answer.
local function listed(schedule)
  local values = { schedule.name }
  for index, field in ipairs(FIELDS) do
    values[index + 1] = schedule[field]
  end
  values[#values + 1] = schedule.spoilt
  return values
end

local function put_in_outbox(base, name, fired_at, jobs)
  local last = whole(redis.call('GET', base .. ':outbox_seq'), 0)
  local number = math.max(last + 1, now)
  redis.call('SET', base .. ':outbox_seq', text(number))
  redis.call('HSET', base .. ':outbox', text(number), cmsgpack.pack({ name, fired_at, jobs }))
  return number
end
