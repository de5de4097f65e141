-- allow-oom
-- Takes a token for each request, or gives a turn. Answers per request -1 for a token, else the microseconds
-- until the turn, and -2 where there is no such rate limit, or none that can be read.
-- uses: buckets rate_keys tokens

local NO_LIMIT, DAY_MS = -2, 86400000

-- Removes buckets of keys that are full and have no turn to come.
local function drop_idle_buckets(base, most)
  local idle = redis.call('ZRANGEBYSCORE', base .. ':rates_idle', '-inf', now, 'LIMIT', 0, most)
  if idle[1] then
    redis.call('HDEL', base .. ':rates', unpack(idle))
    redis.call('ZREM', base .. ':rates_idle', unpack(idle))
  end
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
