DROP FUNCTION IF EXISTS forge_claim_within_limits;
