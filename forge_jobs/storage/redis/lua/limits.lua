-- no-writes
-- Every bucket: scope, capacity, period, tokens there, whether an operator set it.
-- uses: buckets
local function handle(base)
  local states = {}
  for index, scope in ipairs(redis.call('HKEYS', base .. ':limits')) do
    local bucket = load_bucket(base, scope)
    local full = bucket.capacity * bucket.token
    local available = divide(full - level_of(bucket), bucket.token)
    states[index] = { scope, bucket.capacity, bucket.period, available, bucket.overridden }
  end
  return states
end
