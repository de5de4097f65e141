-- no-writes
-- Answers for every bucket scope, capacity, period, tokens there, and whether an operator set the bucket.
-- Zeros stand for a bucket that cannot be read.
-- uses: buckets
local function handle(base)
  local states = {}
  for index, scope in ipairs(redis.call('HKEYS', base .. ':limits')) do
    local bucket = load_bucket(base, scope)
    if bucket then
      local full = bucket.capacity * bucket.token
      local available = divide(math.max(0, full - level_of(bucket)), bucket.token)
      states[index] = { scope, bucket.capacity, bucket.period, available, bucket.overridden }
    else
      states[index] = { scope, 0, 0, 0, false }
    end
  end
  return states
end
