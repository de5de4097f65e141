-- allow-oom
-- Declares a bucket (code) or sets one (an operator, whose size code does not change any more). Tokens that
-- are missing stay missing.
-- uses: buckets

-- Returns a * b / c, rounded up so that no caller gets a token early. a is below c. The product may be too
-- large to be exact, so the sum is made bit by bit.
local function scaled(a, b, c)
  local quotient, rest = 0, 0
  local function add(number)
    rest = rest + number
    if rest >= c then
      quotient, rest = quotient + 1, rest - c
    end
  end
  for bit = 52, 0, -1 do
    quotient = quotient * 2
    add(rest)
    if math.floor(b / 2 ^ bit) % 2 == 1 then
      add(a)
    end
  end
  return rest > 0 and quotient + 1 or quotient
end

local function missing(before, after)
  local tokens, rest = divide(level_of(before), before.token)
  if tokens >= after.capacity then
    return after.capacity * after.token
  end
  return tokens * after.token + scaled(rest, after.token, before.token)
end

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
