-- loses: SELECT 'shares of limits' FROM forge_limits WHERE share IS NOT NULL LIMIT 1
ALTER TABLE forge_openings DROP COLUMN since;

ALTER TABLE forge_limits DROP COLUMN share;
