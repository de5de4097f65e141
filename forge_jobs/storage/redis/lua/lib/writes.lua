-- What a script writes once at its end: indexes, counters, wake-ups. Goes with start.lua.

local topics = {}
local counts = {}

-- redis.call with any number of arguments after the key; `unpack` has a limit.
local function call_many(command, key, arguments)
  for first = 1, #arguments, 400 do
    redis.call(command, key, unpack(arguments, first, math.min(first + 399, #arguments)))
  end
end

-- Writes to indexes, collected: one call for many jobs. They are done by flush_writes, at the end of
-- the script or before something reads them; a job may change its place once in between.
local writes, order = {}, {}

local function later(command, key, ...)
  local name = command .. ' ' .. key
  local write = writes[name]
  if not write then
    write = { command, key, {} }
    writes[name] = write
    order[#order + 1] = write
  end
  local arguments = write[3]
  for index = 1, select('#', ...) do
    arguments[#arguments + 1] = select(index, ...)
  end
end

local function flush_writes()
  for _, write in ipairs(order) do
    call_many(unpack(write))
  end
  writes, order = {}, {}
end

-- Adds to a counter of the queue's minute. host is '' for what no pod did.
local function count(name, host, by)
  local field = name .. '\n' .. (host or '')
  counts[field] = (counts[field] or 0) + (by or 1)
end

-- topic: 'queue <base>', 'beat', 'fleet' or 'handover'
local function ring(topic)
  if not topics[topic] then
    topics[topic] = true
    topics[#topics + 1] = topic
  end
end

local function ring_queue(base)
  ring('queue ' .. base)
end

local function flush_counts(base)
  local minute = now - now % 60000000
  local key = base .. ':m:' .. text(minute)
  local any = false
  for field, by in pairs(counts) do
    redis.call('HINCRBY', key, field, by)
    any = true
  end
  if any then
    if redis.call('ZADD', base .. ':minutes', minute, text(minute)) == 1 then
      redis.call('ZADD', base .. ':unfolded', minute, text(minute))
    end
    redis.call('PEXPIRE', key, 31 * 86400000)
    counts = {}
  end
end

local function flush_topics()
  if #topics > 0 then
    redis.call('PUBLISH', ARGV[3], table.concat(topics, '\n'))
  end
end
