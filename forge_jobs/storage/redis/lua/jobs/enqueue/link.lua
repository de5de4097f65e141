-- Writes links; see linking.lua.
-- uses: jobs letters endings news linking
local handle = write_links
