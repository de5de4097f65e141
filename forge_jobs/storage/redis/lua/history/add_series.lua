-- allow-oom
-- Adds to series: { kind, minute (false: the present one), counts, delay, processing, total, depth } each.
-- Also how many kinds an hour has at most, and the kind of all others.
-- uses: queues histograms series
local function named(hour, kind, most, other)
  if kind ~= '' and redis.call('HEXISTS', hour, kind) == 0 then
    local whole_queue, of_others = redis.call('HEXISTS', hour, ''), redis.call('HEXISTS', hour, other)
    if redis.call('HLEN', hour) - whole_queue - of_others >= most then
      return other
    end
  end
  return kind
end

local function handle(base, request)
  local items, most, other = unpack(request)
  for _, item in ipairs(items) do
    local kind, at, sums, delay, processing, total, depth = unpack(item)
    local minute = at or now - now % 60000000
    local parts = { sums, delay, processing, total, depth }
    local hour, totals = base .. ':fh:' .. text(hour_of(minute)), base .. ':flow_totals'
    add_to_series(base, named(hour, kind, most, other), minute, parts)
    -- The exact counts of a queue are added to its total by fold.lua.
    if kind ~= '' then
      add_to_total(base, named(totals, kind, most, other), parts)
    end
  end
end
