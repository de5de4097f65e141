-- Rate limits by the generic cell rate algorithm: a level that leaks. See the module rate_limits.
--
-- Hash 'limits': scope -> msgpack of { capacity, period, token, leak, level, updated, overridden, the last
-- turn given to a job that waits for tokens, 0 for none }. A token adds `token` to the level, a microsecond
-- takes `leak`. All are whole numbers below 2^53.

local BUCKET = { 'number', 'number', 'number', 'number', 'number', 'number', 'boolean' }

-- Returns the quotient, rounded down, and the rest. Both are exact, which '/' and '%' alone are not for
-- large numbers.
local function divide(number, divisor)
  local rest = math.fmod(number, divisor)
  return (number - rest) / divisor, rest
end

-- Returns how far ahead tokens can be reserved, in microseconds. See furthest_us in storage/buckets.py.
local function furthest(bucket)
  local by_level = divide(2 ^ 52, bucket.leak)
  local by_capacity = divide(2 ^ 61, bucket.capacity)
  return math.min(900000000, by_level, by_capacity)
end

-- Returns the time of the last turn. A clock that was set back has left a bucket of the future: then the line
-- is as long as before.
local function last_turn_of(last_turn, updated)
  return math.max(0, whole(last_turn, 0) - math.max(0, updated - now))
end

-- nil when there is none, or none that can be read, and which of the two: 'unknown', 'unreadable'.
local function load_bucket(base, scope)
  local packed = redis.call('HGET', base .. ':limits', scope)
  if not packed then
    return nil, 'unknown'
  end
  local values = unpacked(packed, BUCKET)
  if not values or math.min(unpack(values, 1, 4)) < 1 then
    return nil, 'unreadable'
  end
  local capacity, period, token, leak, level, updated, overridden, last_turn = unpack(values)
  local bucket = {
    capacity = capacity, period = period, token = token, leak = leak, level = math.max(0, level),
    updated = updated, overridden = overridden, last_turn = last_turn_of(last_turn, updated),
  }
  bucket.level = math.min(bucket.level, capacity * token + furthest(bucket) * leak)
  return bucket
end

local function store_bucket(base, scope, bucket)
  redis.call('HSET', base .. ':limits', scope, cmsgpack.pack({
    bucket.capacity, bucket.period, bucket.token, bucket.leak, bucket.level, bucket.updated,
    bucket.overridden, bucket.last_turn,
  }))
end

-- Returns the level now, above that of an empty bucket where tokens are reserved. A level that was written
-- in the future stays, but for reserved tokens: no bucket stays short of tokens for longer than its period.
local function level_of(bucket)
  local elapsed = now - bucket.updated
  if elapsed < 0 then
    return math.min(bucket.level, bucket.capacity * bucket.token)
  end
  -- A product too large to be exact is larger than any level.
  return math.max(0, bucket.level - elapsed * bucket.leak)
end
