-- Tokens and turns of a bucket, for jobs that begin. See buckets.lua.

local A_TOKEN = -1

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
