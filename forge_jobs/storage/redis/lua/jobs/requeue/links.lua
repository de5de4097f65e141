-- no-writes
-- Answers what a requeue must know of jobs before: per job the id, why the job would be refused (false: no
-- reason), the key, and the edges (parent and edge in turn).
-- uses: jobs places terms filters seen visits requeueing
local function link(base, job)
  local refused = refusal(base, job) or is_key_taken(base, job) and 'key_taken'
  return refused or false, job.key or '', read_record('HGETALL', base .. ':waits:' .. job.id) or {}
end

local function handle(base, request)
  return visit(base, request, link)
end
