-- no-writes
-- Answers the schedules of these names that are there. No names: all schedules.
-- uses: schedules
local function handle(base, names)
  if #names == 0 then
    names = redis.call('HKEYS', base .. ':schedules')
  end
  local found = {}
  for _, name in ipairs(names) do
    local schedule = load_schedule(base, name)
    if schedule then
      found[#found + 1] = listed(schedule)
    end
  end
  return found
end
