-- no-writes
-- The time and requests: that of this id, or the newest of a pod, the newest first.
-- uses: pods requests
local function handle(base, request)
  local id, host, kept = unpack(request)
  local found = {}
  for _, each in ipairs(id ~= '' and { id } or requests_of(base, host)) do
    local fields = read_request(base, each, kept)
    if fields then
      table.insert(found, 1, fields)
    end
  end
  return { now, found }
end
