-- no-writes
-- Answers the ids of jobs that the filter means.
-- uses: places terms filters
local function handle(base, request)
  local meant, ids = unpack(request)
  local filter = read_filter(meant)
  local found = {}
  for _, id in ipairs(ids) do
    if matches(base, filter, id) then
      found[#found + 1] = id
    end
  end
  return found
end
