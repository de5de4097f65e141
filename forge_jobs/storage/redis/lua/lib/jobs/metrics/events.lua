-- The timeline: zset 'events' by time, list 'ev:<id>' that of one job. Of one instant the later appended
-- event comes later, by a number at the start of the member.

-- Retention takes an event from both. This ends what a fault may have left in one list alone.
local EVENTS_KEPT_MS = 3650 * 86400000

local function next_event(base, least)
  local key = base .. ':event_seq'
  local number = math.max(whole(redis.call('GET', key), 0) + 1, least)
  redis.call('SET', key, text(number))
  return string.format('%016.0f', number)
end

-- How the list of one job names an event.
local function named_event(at, member)
  return text(at) .. ' ' .. member
end

-- least: the least number of the event, so that events of several queues can be put in order.
local function append_event(base, at, kind, id, host, detail, least)
  local member = next_event(base, least or 0) .. cmsgpack.pack({ kind, id, host, detail })
  redis.call('ZADD', base .. ':events', at, member)
  if id ~= '' then
    redis.call('RPUSH', base .. ':ev:' .. id, named_event(at, member))
    redis.call('PEXPIRE', base .. ':ev:' .. id, EVENTS_KEPT_MS)
  end
end

local EVENT = { 'string', 'string', 'string', 'string' }

-- Returns at, number, kind, job, host, detail, all of them '' where the event cannot be read.
local function unpack_event(at, member)
  local event = unpacked(string.sub(member, 17), EVENT) or { '', '', '', '' }
  return { at, whole(string.sub(member, 1, 16), 0), unpack(event) }
end
