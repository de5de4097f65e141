-- no-writes
-- Answers for every bucket scope, capacity, period, tokens there, whether an operator set the bucket, and in
-- how many microseconds there is one more token, -1 where none is missing. Zeros stand for a bucket that cannot be read.
-- uses: buckets
local function handle(base)
  local states = {}
  for index, scope in ipairs(redis.call('HKEYS', base .. ':limits')) do
    local bucket = load_bucket(base, scope)
    if bucket then
      local full, level = bucket.capacity * bucket.token, level_of(bucket)
      local available, wait = divide(math.max(0, full - level), bucket.token), -1
      if level > 0 then
        wait = math.ceil((level - (bucket.capacity - available - 1) * bucket.token) / bucket.leak)
      end
      states[index] = { scope, bucket.capacity, bucket.period, available, bucket.overridden, wait }
    else
      states[index] = { scope, 0, 0, 0, false, -1 }
    end
  end
  return states
end
