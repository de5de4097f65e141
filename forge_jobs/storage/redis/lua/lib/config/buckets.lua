-- Rate limits by the generic cell rate algorithm: a level that leaks. See the module rate_limits.
--
-- Hash 'limits': scope -> msgpack of { capacity, period, token, leak, level, updated, overridden, the last
-- turn given to a job that waits for tokens, 0 for none }. A token adds `token` to the level, a microsecond
-- takes `leak`. All are whole numbers below 2^53.

local BUCKET = { 'number', 'number', 'number', 'number', 'number', 'number', 'boolean' }

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
  return {
    capacity = capacity, period = period, token = token, leak = leak,
    level = math.min(math.max(0, level), capacity * token),
    updated = updated, overridden = overridden, last_turn = whole(last_turn, 0),
  }
end

local function store_bucket(base, scope, bucket)
  redis.call('HSET', base .. ':limits', scope, cmsgpack.pack({
    bucket.capacity, bucket.period, bucket.token, bucket.leak, bucket.level, bucket.updated,
    bucket.overridden, bucket.last_turn,
  }))
end

-- Returns the level now. A level that was written in the future stays.
local function level_of(bucket)
  local elapsed = now - bucket.updated
  if elapsed <= 0 then
    return bucket.level
  end
  -- A product too large to be exact is larger than any level.
  return math.max(0, bucket.level - elapsed * bucket.leak)
end

-- Returns the quotient, rounded down, and the rest. Both are exact, which '/' and '%' alone are not for
-- large numbers.
local function divide(number, divisor)
  local rest = math.fmod(number, divisor)
  return (number - rest) / divisor, rest
end
