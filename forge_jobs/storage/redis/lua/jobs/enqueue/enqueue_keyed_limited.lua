-- Stores jobs in queues, in all of them or in none: enqueue_keyed.lua, for requests with limits.
-- uses: jobs letters endings cancels lists queues locators foreign handing linking places holders meeting admission planning templates sequences replacing parking inserting storing
check = plan_jobs
local handle = store_planned
