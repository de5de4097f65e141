-- Stores jobs in queues, in all of them or in none: enqueue.lua, for requests with unique keys.
-- uses: jobs letters endings cancels lists queues locators foreign handing linking places holders meeting admission planning templates sequences replacing no_limits inserting storing
check = plan_jobs
local handle = store_planned
