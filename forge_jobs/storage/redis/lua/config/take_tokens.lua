-- allow-oom
-- Takes tokens, or none. Answers a word with a number: 'granted' and 'wait' with the microseconds until the
-- tokens are there, 'too many' with the capacity, 'unknown' or 'unreadable'.
-- uses: buckets
local function handle(base, request)
  local scope, asked, within = unpack(request)
  local bucket, why = load_bucket(base, scope)
  if not bucket then
    return { why, 0 }
  end
  if asked > bucket.capacity then
    return { 'too many', bucket.capacity }
  end
  local level = level_of(bucket)
  local wait, rest = divide(math.max(0, level - (bucket.capacity - asked) * bucket.token), bucket.leak)
  wait = rest > 0 and wait + 1 or wait
  if wait == 0 or within > 0 and wait <= math.min(within, furthest(bucket)) then
    bucket.level, bucket.updated = level + asked * bucket.token, now
    store_bucket(base, scope, bucket)
    return { 'granted', wait }
  end
  -- The clock stepped back: the bucket leaks from now on, not from when the clock has caught up.
  if bucket.updated > now then
    bucket.level, bucket.updated = level, now
    store_bucket(base, scope, bucket)
  end
  return { 'wait', wait }
end
