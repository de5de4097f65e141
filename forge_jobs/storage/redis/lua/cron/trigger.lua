-- Puts jobs of a schedule into the outbox out of turn. Answers the number there, -1 when there is
-- no such schedule.
-- uses: schedules
local function handle(base, request)
  local name, jobs = unpack(request)
  local schedule = load_schedule(base, name)
  if not schedule or schedule.deleted then
    return -1
  end
  return put_in_outbox(base, name, false, jobs)
end
