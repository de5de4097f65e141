-- no-writes
-- Counts the jobs of a filter by one kind of list: by status, kind, tag, key or schedule alone.
-- uses: places terms filters listing
local function handle(base, request)
  local meant = unpack(request)
  local _, size = narrowest(base, read_filter(meant))
  spend(10)
  return size
end
