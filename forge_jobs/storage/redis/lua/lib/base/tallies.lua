-- Counters and claims of pods, which a script adds up and writes once at the end. Goes with start.lua.

local counts = {}

local owned = {}

-- Adds to a number in a hash, and returns the sum. A number that cannot be read begins anew. The counted
-- change is done, so a key of another type stops nothing.
local function add_up(key, field, by)
  local sum = redis.pcall('HINCRBY', key, field, by)
  if type(sum) == 'table' then
    redis.pcall('HSET', key, field, by)
    return by
  end
  return sum
end

-- Adds to a counter of the queue's minute. host is '' for what no pod did.
local function count(name, host, by)
  local field = name .. '\n' .. (host or '')
  counts[field] = (counts[field] or 0) + (by or 1)
end

-- Adds to how many claims a pod has.
local function own(host, by)
  owned[host] = (owned[host] or 0) + by
end

local function flush_owned(base)
  for host, by in pairs(owned) do
    if by ~= 0 and add_up(base .. ':owners', host, by) <= 0 then
      redis.pcall('HDEL', base .. ':owners', host)
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
    if add_up(key, field, by) == by then
      if redis.pcall('ZADD', base .. ':minutes', minute, minute) == 1 then
        redis.pcall('ZADD', base .. ':unfolded', minute, minute)
      end
      redis.call('PEXPIRE', key, 31 * 86400000)
    end
  end
  counts = {}
end
