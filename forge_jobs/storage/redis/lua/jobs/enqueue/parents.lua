-- no-writes
-- The parents of links that are not there, and that must be.
-- uses: jobs letters endings handing linking
local handle = missing_parents
