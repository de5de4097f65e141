-- no-writes
-- Answers per id { payload, newest error, hash of both }, false for a job that is gone.
-- uses: seen
local function handle(base, request)
  local ids = unpack(request)
  local found = {}
  spend(4 * #ids)
  for index, id in ipairs(ids) do
    local payload, error = texts_of(base, id)
    found[index] = payload and { payload, error, hash_of(payload, error) }
  end
  return found
end
