-- Stores jobs in queues, in all of them or in none.
-- uses: jobs lists queues locators admission planning templates inserting storing
check = plan_jobs
local handle = store_planned
