-- allow-oom
-- Gives places in the line of a bucket. Answers what happened ('given', 'too many', 'unknown'), the
-- capacity, and per count for how many microseconds to wait, -1 where the line is too long.
-- uses: buckets

local function rounded_up(number, divisor)
  local quotient, rest = divide(number, divisor)
  return rest > 0 and quotient + 1 or quotient
end

local function handle(base, request)
  local scope, all_asked, within = unpack(request)
  local bucket, why = load_bucket(base, scope)
  if not bucket then
    return { why, 0, {} }
  end
  local level, latest = level_of(bucket), now + within
  local last, waits = math.min(bucket.last_turn, latest), {}
  for index, asked in ipairs(all_asked) do
    if asked > bucket.capacity then
      return { 'too many', bucket.capacity, {} }
    end
    local surplus = math.max(0, level - (bucket.capacity - asked) * bucket.token)
    local turn = math.max(
      now + rounded_up(surplus, bucket.leak), last + rounded_up(asked * bucket.token, bucket.leak)
    )
    waits[index] = turn <= latest and turn - now or -1
    last = turn <= latest and turn or last
  end
  if last ~= bucket.last_turn or bucket.updated > now then
    bucket.last_turn = last
    bucket.level, bucket.updated = bucket.updated > now and level or bucket.level, math.min(bucket.updated, now)
    store_bucket(base, scope, bucket)
  end
  return { 'given', bucket.capacity, waits }
end
