-- no-writes
-- Answers per id what a line of a list shows, '' for what is not set, false for a job that is gone.
local SHOWN = {
  'status', 'cause', 'kind', 'priority', 'attempt', 'enqueued', 'run_at', 'finished', 'hold',
  'host', 'started', 'tags', 'doc',
}

local function line(base, id)
  local key = base .. ':j:' .. id
  local values = read_fields(key, unpack(SHOWN))
  if not values[1] and redis.call('EXISTS', key) == 0 then
    return false
  end
  local error = read_record('LINDEX', base .. ':err:' .. id, -1)
  values[#SHOWN + 1] = error == nil and 'of another type' or error
  for index = 1, #SHOWN + 1 do
    values[index] = values[index] or ''
  end
  return values
end

local function handle(base, ids)
  local lines = {}
  spend(2 * #ids)
  for index, id in ipairs(ids) do
    lines[index] = line(base, id)
  end
  return lines
end
