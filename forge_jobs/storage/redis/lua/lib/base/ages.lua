-- Finds what is too old in lists of minutes and hours: zsets by when they begin.

-- The bounds of minutes that are folded: of hours that are past their minutes as a whole, and that
-- are not themselves to go.
local function foldable(minutes_kept, hours_kept)
  return '(' .. text(now - hours_kept), '(' .. text(hour_of(now - minutes_kept))
end

-- Lets the keys of an hour end by themselves some time after they should have gone.
local function end_hour(hours_kept, ...)
  for _, key in ipairs({ ... }) do
    redis.call('PEXPIRE', key, text((hours_kept + DAY) / 1000))
  end
end

local function oldest_foldable(key, minutes_kept, hours_kept, limit)
  local first, last = foldable(minutes_kept, hours_kept)
  return redis.call('ZRANGE', key, first, last, 'BYSCORE', 'LIMIT', 0, limit)
end
