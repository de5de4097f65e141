-- allow-oom
-- Takes a token for each request, or gives a turn. Answers per request -1 for a token, else the microseconds
-- until the turn, and -2 where there is no such rate limit, or none that can be read.
-- uses: buckets rate_keys

local A_TOKEN, NO_LIMIT, DAY_MS = -1, -2, 86400000

-- Removes buckets of keys that are full and have no turn to come.
local function drop_idle_buckets(base, most)
  local idle = redis.call('ZRANGEBYSCORE', base .. ':rates_idle', '-inf', now, 'LIMIT', 0, most)
  if idle[1] then
    redis.call('HDEL', base .. ':rates', unpack(idle))
    redis.call('ZREM', base .. ':rates_idle', unpack(idle))
  end
end

-- Takes a token, or gives a turn that is not after `latest`. Without `waits` the turn takes no place.
-- Each turn before has its own token, for a request that `had_turn`.
local function serve(bucket, latest, waits, had_turn)
  local function after(level)
    local wait, rest = divide(level, bucket.leak)
    return rest > 0 and wait + 1 or wait
  end
  local surplus = bucket.level - (bucket.capacity - 1) * bucket.token
  local before, last = bucket.last_turn, math.min(bucket.last_turn, latest)
  local free_at = last + after(bucket.token)
  if surplus <= 0 and (had_turn or free_at <= now or bucket.level <= 0) then
    bucket.level, bucket.is_changed = bucket.level + bucket.token, true
    return A_TOKEN
  end
  local turn = math.max(now + after(math.max(surplus, 0)), free_at)
  if waits then
    bucket.last_turn = turn <= latest and turn or last
    bucket.is_changed = bucket.is_changed or bucket.last_turn ~= before
  end
  return math.min(turn, latest) - now
end

-- Takes a token that is used within `ahead`, where plenty are there and no turn is open. Nothing leaks meanwhile:
-- the level is at least what leaks in that time. See ADR 301.
local function serve_ahead(bucket, ahead)
  local wait, rest = divide(bucket.token, bucket.leak)
  local is_free = bucket.last_turn + wait + (rest > 0 and 1 or 0) <= now
  local level = math.max(bucket.level, ahead * bucket.leak) + bucket.token
  if not is_free or 2 * level > bucket.capacity * bucket.token then
    return 0
  end
  bucket.level, bucket.is_changed = level, true
  return A_TOKEN
end

local function handle(base, request)
  local asks, within = unpack(request)
  local latest = now + within
  drop_idle_buckets(base, 2 * #asks)
  local limits, buckets, answers = {}, {}, {}
  for index, ask in ipairs(asks) do
    local scope, key, waits, had_turn, ahead = unpack(ask)
    if limits[scope] == nil then
      limits[scope] = load_bucket(base, scope) or false
    end
    local limit, field = limits[scope], scope .. '\0' .. key
    local bucket = buckets[field]
    if limit then
      if not bucket then
        bucket = key == '' and limit or load_key_bucket(base, field, limit)
        bucket.is_changed = bucket.is_changed or bucket.updated > now
        bucket.level, bucket.updated = level_of(bucket), now
        bucket.scope, bucket.key = scope, key
        buckets[field] = bucket
      end
    end
    if not limit then
      answers[index] = NO_LIMIT
    elseif ahead > 0 then
      answers[index] = serve_ahead(bucket, ahead)
    else
      answers[index] = serve(bucket, latest, waits, had_turn ~= false)
    end
  end
  local last = 0
  for field, bucket in pairs(buckets) do
    if bucket.is_changed and bucket.key == '' then
      store_bucket(base, bucket.scope, bucket)
    elseif bucket.is_changed then
      last = math.max(last, store_key_bucket(base, field, bucket))
    end
  end
  if last > 0 then
    -- Long after the last of them is full, in case no further call drops them.
    local kept_ms = math.ceil((last - now) / 1000) + DAY_MS
    for _, name in ipairs({ ':rates', ':rates_idle' }) do
      if redis.call('PTTL', base .. name) < kept_ms then
        redis.call('PEXPIRE', base .. name, kept_ms)
      end
    end
  end
  return answers
end
