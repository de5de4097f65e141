-- The lists that hold all jobs of a filter. Used with places.
local STATUSES = { 'blocked', 'pending', 'in_progress', 'failed', 'done', 'dead', 'cancelled' }

local function lists(base, prefix, values)
  local keys, size = {}, 0
  for index, value in ipairs(values) do
    local list = prefix .. value
    keys[index] = base .. (list == ':s:in_progress' and ':claimed' or list)
    size = size + redis.call('ZCARD', keys[index])
  end
  return keys, size
end

-- The keys of the fewest jobs, and how many these are.
local function narrowest(base, filter)
  local keys, size = lists(base, ':s:', #filter.statuses > 0 and filter.statuses or STATUSES)
  for prefix, values in pairs({
    [':kind:'] = filter.kinds, [':tag:'] = { filter.tag or nil }, [':key:'] = filter.key and places_of(filter.key) or {},
    [':schedule:'] = { filter.schedule or nil },
  }) do
    local others, smaller = lists(base, prefix, values)
    if #values > 0 and smaller < size then
      keys, size = others, smaller
    end
  end
  return keys, size
end
