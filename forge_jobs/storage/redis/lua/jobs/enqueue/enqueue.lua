-- Stores jobs in queues, in all of them or in none.
-- uses: jobs endings lists queues locators foreign news linking admission planning templates inserting storing
check = plan_jobs
local handle = store_planned
