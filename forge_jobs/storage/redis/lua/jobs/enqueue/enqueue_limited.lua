-- Stores jobs in queues, in all of them or in none: enqueue.lua, for requests with limits.
-- uses: jobs letters endings lists queues locators foreign handing linking no_keys admission planning templates sequences parking inserting storing
check = plan_jobs
local handle = store_planned
