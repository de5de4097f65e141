-- no-writes
-- Answers what `enqueue` would answer now.
-- uses: jobs letters endings lists queues locators foreign handing linking places holders meeting admission planning
local function handle(base, request)
  local refusal = plan_jobs(base, request)
  return refusal or stored(request.plan)
end
