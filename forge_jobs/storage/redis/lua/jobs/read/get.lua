-- no-writes
-- Answers per id { the hash, the errors, parents that the job waits for and their states in turn }, false
-- for a job that is not there.
-- uses: jobs edges whole
local function handle(base, ids)
  local jobs = {}
  for index, id in ipairs(ids) do
    local fields, errors, is_blocked = read_whole(base, id)
    jobs[index] = fields and { fields, errors, is_blocked and unsettled(base, id) or {} }
  end
  return jobs
end
