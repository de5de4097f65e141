-- Stores jobs without unique keys in queues, in all of them or in none. See enqueue_keyed.lua.
-- uses: jobs letters endings lists queues locators foreign handing linking no_keys admission planning templates sequences no_limits inserting storing
check = plan_jobs
local handle = store_planned
