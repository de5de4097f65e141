-- allow-oom
-- Declares a bucket (code) or sets it (an operator, whose size code does not change any more). What
-- is missing from it stays missing, in tokens.
-- uses: buckets
local function missing(before, after)
  local tokens, rest = divide(level_of(before), before.token)
  if tokens >= after.capacity then
    return after.capacity * after.token
  end
  -- A part of a token is rounded up: nobody gets one early.
  local part = rest > 0 and math.floor(rest / before.token * after.token) + 1 or 0
  return tokens * after.token + math.min(part, after.token)
end

local function handle(base, request)
  local scope, capacity, period, token, leak, by_operator = unpack(request)
  local before = load_bucket(base, scope)
  if before and before.overridden and not by_operator then
    return
  end
  local after = {
    capacity = capacity, period = period, token = token, leak = leak, level = 0, updated = now,
    overridden = by_operator,
  }
  if before then
    local is_same = before.capacity == capacity and before.period == period
    if is_same and before.overridden == by_operator then
      return
    end
    after.level = missing(before, after)
  end
  store_bucket(base, scope, after)
end
