-- allow-oom
-- Takes tokens, or none. Answers a word with a number: 'granted', 'wait' with the microseconds, 'too many'
-- with the capacity, 'unknown' or 'unreadable'.
-- uses: buckets
local function handle(base, request)
  local scope, asked = unpack(request)
  local bucket, why = load_bucket(base, scope)
  if not bucket then
    return { why, 0 }
  end
  if asked > bucket.capacity then
    return { 'too many', bucket.capacity }
  end
  local level = level_of(bucket)
  local surplus = level - (bucket.capacity - asked) * bucket.token
  if surplus <= 0 then
    bucket.level, bucket.updated = level + asked * bucket.token, now
    store_bucket(base, scope, bucket)
    return { 'granted', 0 }
  end
  -- The clock stepped back: the bucket leaks from now on, not from when the clock has caught up.
  if bucket.updated > now then
    bucket.updated = now
    store_bucket(base, scope, bucket)
  end
  local wait, rest = divide(surplus, bucket.leak)
  return { 'wait', rest > 0 and wait + 1 or wait }
end
