-- Wake-ups, published once at the end of a script, and who waits for them. Goes with start.lua.

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
  local waits = whole(waits_of[base], 0)
  if waits < time + WAITED_FOR - NOTED_AGAIN then
    redis.call('HSET', base .. ':queue', 'waits', text(time + WAITED_FOR))
  end
  return waits > time
end

-- topic: 'beat', 'fleet', 'handover' or 'letters'
local function ring(topic)
  if not topics[topic] then
    topics[topic] = true
    topics[#topics + 1] = topic
  end
end

local function ring_queue(base)
  woken[base] = true
end

local function is_waited_for(base)
  local waits = waits_of[base]
  if waits == nil then
    waits = redis.call('HGET', base .. ':queue', 'waits')
  end
  return waits and whole(waits, 0) > wall_time()
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
