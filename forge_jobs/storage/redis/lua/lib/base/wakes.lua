-- Wake-ups, published once at the end of a script, and who waits for them. Goes with start.lua.

local topics, woken = {}, {}

-- A queue counts as waited for so long after a claim has found too little. So much later the next such
-- claim notes the wait again.
local WAITED_FOR, NOTED_AGAIN = 60000000, 10000000

-- Of queues whose record a script has read anyway: until when they are waited for, false for never.
local waits_of = {}

-- The server's own time, for what has nothing to do with the store's clock.
local function wall_time()
  return ARGV[1] == '' and now or server_time()
end

-- Notes that a caller waits for jobs of a queue. Returns whether one did before.
local function note_waiting(base)
  local time = wall_time()
  local waits = whole(waits_of[base], 0)
  if waits < time + WAITED_FOR - NOTED_AGAIN then
    redis.call('HSET', base .. ':queue', 'waits', text(time + WAITED_FOR))
  end
  return waits > time
end

-- topic: 'beat', 'fleet', 'handover' or 'letters'
local function wake(topic)
  if not topics[topic] then
    topics[topic] = true
    topics[#topics + 1] = topic
  end
end

local function wake_queue(base)
  woken[base] = true
end

local function is_waited_for(base)
  local waits = waits_of[base]
  if waits == nil then
    waits = redis.call('HGET', base .. ':queue', 'waits')
  end
  return waits and whole(waits, 0) > wall_time()
end

-- A queue has a channel of its own, which only pods that serve the queue hear. Nothing is published while
-- no caller waits. The last argument says how: PUBLISH, or in a cluster SPUBLISH, whose messages stay with
-- the server of the queue and the replicas. What concerns the fleet is for the processes of all queues.
local function flush_topics()
  for base in pairs(woken) do
    if is_waited_for(base) then
      redis.call(ARGV[#ARGV], ARGV[3] .. ':' .. base:match('{.*'), '')
    end
  end
  if #topics > 0 then
    redis.call('PUBLISH', ARGV[3], table.concat(topics, '\n'))
  end
end
