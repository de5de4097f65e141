-- allow-oom
-- Takes tokens, or none. Answers what happened, and what goes with it: 'granted'; 'wait', for how
-- many microseconds; 'too many', the capacity; 'unknown' or 'unreadable'.
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
  -- The clock stepped back: it leaks from now on, not from when the clock has caught up.
  if bucket.updated > now then
    bucket.updated = now
    store_bucket(base, scope, bucket)
  end
  local wait, rest = divide(surplus, bucket.leak)
  return { 'wait', rest > 0 and wait + 1 or wait }
end
