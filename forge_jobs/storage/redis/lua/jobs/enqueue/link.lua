-- Writes links. See linking.lua.
-- uses: jobs letters endings handing linking
local handle = write_links
