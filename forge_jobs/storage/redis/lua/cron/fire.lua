-- Advances the schedule of each firing and puts the jobs into the outbox, in one step. Answers the number
-- there, 0 without jobs. -1: the version has moved on, and nothing is written.
-- uses: schedules
local function fire(base, firing)
  local name, version, next_at, skipped, failure, fired_at, jobs = unpack(firing)
  local schedule = load_schedule(base, name)
  if not schedule or schedule.deleted or schedule.version ~= version then
    return -1
  end
  schedule.next_at, schedule.error = next_at, failure
  schedule.skipped = schedule.skipped + skipped
  store_schedule(base, schedule)
  return jobs and put_in_outbox(base, name, fired_at, jobs) or 0
end

local function handle(base, firings)
  local numbers = {}
  for index, firing in ipairs(firings) do
    numbers[index] = fire(base, firing)
  end
  return numbers
end
