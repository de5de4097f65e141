-- loses: SELECT 'shares of limits' FROM forge_limits WHERE share IS NOT NULL LIMIT 1
DROP FUNCTION IF EXISTS forge_claim_with_settings;

DROP FUNCTION IF EXISTS forge_claim_within_limits;

DROP FUNCTION IF EXISTS forge_claim_job_by_job;

DROP FUNCTION IF EXISTS forge_take_turns;

ALTER TABLE forge_openings DROP COLUMN since;

ALTER TABLE forge_limits DROP COLUMN share;
