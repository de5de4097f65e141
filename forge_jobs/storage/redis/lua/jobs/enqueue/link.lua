-- Writes links; see linking.lua.
-- uses: jobs endings news linking
local handle = write_links
