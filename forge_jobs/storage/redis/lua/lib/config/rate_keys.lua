-- Buckets of another size, and the buckets of the keys of a rate limit. See buckets.lua.
--
-- Hash 'rates': scope, a zero byte and a key -> as in 'limits' without 'overridden'. A bucket without an
-- entry is full. Sorted set 'rates_idle': when a bucket is full and has no turn to come.

-- Returns a * b / c, rounded up so that no caller gets a token early. a is below c. The product may be too
-- large to be exact, so the sum is made bit by bit.
local function scaled(a, b, c)
  local quotient, rest = 0, 0
  local function add(number)
    rest = rest + number
    if rest >= c then
      quotient, rest = quotient + 1, rest - c
    end
  end
  for bit = 52, 0, -1 do
    quotient = quotient * 2
    add(rest)
    if math.floor(b / 2 ^ bit) % 2 == 1 then
      add(a)
    end
  end
  return rest > 0 and quotient + 1 or quotient
end

-- Returns the level of a bucket that gets another size. Tokens that are missing stay missing.
-- Reserved tokens come when they were promised: the bucket is empty until then.
local function missing(before, after)
  local reserved, part = divide(level_of(before) - before.capacity * before.token, before.leak)
  if reserved > 0 or part > 0 then
    local ahead = math.min(part > 0 and reserved + 1 or reserved, furthest(after))
    return after.capacity * after.token + ahead * after.leak
  end
  local tokens, rest = divide(level_of(before), before.token)
  if tokens >= after.capacity then
    return after.capacity * after.token
  end
  return tokens * after.token + scaled(rest, after.token, before.token)
end

local KEY_BUCKET = { 'number', 'number', 'number', 'number', 'number', 'number', 'number' }

-- Returns the bucket of a key, in the size of its rate limit.
local function load_key_bucket(base, field, limit)
  local bucket = { level = 0, updated = now, last_turn = 0 }
  for _, name in ipairs({ 'capacity', 'period', 'token', 'leak' }) do
    bucket[name] = limit[name]
  end
  local packed = redis.call('HGET', base .. ':rates', field)
  if not packed then
    return bucket
  end
  local values = unpacked(packed, KEY_BUCKET)
  if not values or math.min(unpack(values, 1, 4)) < 1 then
    bucket.level, bucket.is_changed = bucket.capacity * bucket.token, true -- the level is unknown
    return bucket
  end
  local before = {}
  before.capacity, before.period, before.token, before.leak, before.level, before.updated = unpack(values)
  before.level = math.min(math.max(0, before.level), before.capacity * before.token)
  if before.capacity ~= bucket.capacity or before.period ~= bucket.period then
    bucket.level, bucket.is_changed = missing(before, bucket), true
    return bucket
  end
  before.last_turn = last_turn_of(values[7], before.updated)
  return before
end

local function store_key_bucket(base, field, bucket)
  local full_in, rest = divide(bucket.level, bucket.leak)
  local ends = math.max(bucket.updated + full_in + (rest > 0 and 1 or 0), bucket.last_turn)
  redis.call('HSET', base .. ':rates', field, cmsgpack.pack({
    bucket.capacity, bucket.period, bucket.token, bucket.leak, bucket.level, bucket.updated,
    bucket.last_turn,
  }))
  redis.call('ZADD', base .. ':rates_idle', ends, field)
  return ends
end
