-- What a script adds up and writes once at its end: counters, claims of pods, wake-ups. Goes with
-- start.lua.

local topics, woken = {}, {}

-- So long a queue is waited for after somebody has found too little in it, and so much later the next
-- one to find too little notes it again.
local WAITED_FOR, NOTED_AGAIN = 60000000, 10000000

-- Of queues whose record a script has read anyway: until when they are waited for, false for never.
local waits_of = {}

-- The server's own time, for what has nothing to do with the store's clock.
local function wall_time()
  return ARGV[1] == '' and now or server_time()
end

-- Notes that somebody waits for jobs of a queue; whether that was so before.
local function note_waiting(base)
  local time = wall_time()
  local waits = tonumber(waits_of[base] or 0)
  if waits < time + WAITED_FOR - NOTED_AGAIN then
    redis.call('HSET', base .. ':queue', 'waits', text(time + WAITED_FOR))
  end
  return waits > time
end

local counts, owned = {}, {}

-- Adds to a counter of the queue's minute. host is '' for what no pod did.
local function count(name, host, by)
  local field = name .. '\n' .. (host or '')
  counts[field] = (counts[field] or 0) + (by or 1)
end

-- Adds to how many claims a pod has.
local function own(host, by)
  owned[host] = (owned[host] or 0) + by
end

-- topic: 'beat', 'fleet' or 'handover'
local function ring(topic)
  if not topics[topic] then
    topics[topic] = true
    topics[#topics + 1] = topic
  end
end

local function ring_queue(base)
  woken[base] = true
end

local function flush_owned(base)
  for host, by in pairs(owned) do
    if by ~= 0 and redis.call('HINCRBY', base .. ':owners', host, by) <= 0 then
      redis.call('HDEL', base .. ':owners', host)
    end
  end
  owned = {}
end

local function flush_counts(base)
  if not next(counts) then
    return
  end
  local minute = text(now - now % 60000000)
  local key = base .. ':m:' .. minute
  for field, by in pairs(counts) do
    -- Only the first of a field may be the first of the minute.
    if redis.call('HINCRBY', key, field, by) == by then
      if redis.call('ZADD', base .. ':minutes', minute, minute) == 1 then
        redis.call('ZADD', base .. ':unfolded', minute, minute)
      end
      redis.call('PEXPIRE', key, 31 * 86400000)
    end
  end
  counts = {}
end

local function is_waited_for(base)
  local waits = waits_of[base]
  if waits == nil then
    waits = redis.call('HGET', base .. ':queue', 'waits')
  end
  return waits and tonumber(waits) > wall_time()
end

-- A queue has a channel of its own, which nobody hears who does not serve it. Nothing is published
-- while nobody waits.
local function flush_topics()
  for base in pairs(woken) do
    if is_waited_for(base) then
      redis.call('PUBLISH', ARGV[3] .. ':' .. base:match('{.*'), '')
    end
  end
  if #topics > 0 then
    redis.call('PUBLISH', ARGV[3], table.concat(topics, '\n'))
  end
end
