-- allow-oom
-- Writes a schedule as the next version of the one that was read (version 0: there was none). Answers
-- false, and writes nothing, when the stored version is another one.
-- uses: schedules
local function handle(base, values)
  local schedule = { name = values[1] }
  for index, field in ipairs(FIELDS) do
    schedule[field] = values[index + 1]
  end
  local before = load_schedule(base, schedule.name)
  if (before and before.version or 0) ~= schedule.version then
    return false
  end
  store_schedule(base, schedule)
  return true
end
