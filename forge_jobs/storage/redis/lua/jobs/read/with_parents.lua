-- no-writes
-- Answers per id { the hash, the errors, the parents and edges in turn }, false for a job that is not there.
-- uses: jobs edges whole
local function handle(base, ids)
  local jobs = {}
  for index, id in ipairs(ids) do
    local fields, errors = read_whole(base, id)
    jobs[index] = fields and { fields, errors, read_record('HGETALL', base .. ':waits:' .. id) or {} }
  end
  return jobs
end
