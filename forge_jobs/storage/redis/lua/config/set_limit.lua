-- allow-oom
-- Declares a bucket (code) or sets one (an operator, whose size code does not change any more). Tokens that
-- are missing stay missing.
-- uses: buckets rate_keys
local function handle(base, request)
  local scope, capacity, period, token, leak, by_operator = unpack(request)
  local before, why = load_bucket(base, scope)
  if before and before.overridden and not by_operator then
    return
  end
  local after = {
    capacity = capacity, period = period, token = token, leak = leak, level = 0, updated = now,
    overridden = by_operator, last_turn = 0,
  }
  if before then
    local is_same = before.capacity == capacity and before.period == period
    if is_same and before.overridden == by_operator then
      return
    end
    after.level = missing(before, after)
  elseif why == 'unreadable' then
    after.level = capacity * token -- No caller knows what was there.
  end
  store_bucket(base, scope, after)
end
