-- no-writes
-- Answers what a restore must know of jobs before: per job the id, why the job would be refused (false: no
-- reason), the key, the edges (parent and edge in turn), the children with the tags of their queues, and
-- the number of the newest end that was noted here.
-- uses: jobs places terms filters seen visits requeueing
local function look(base, job)
  local refused = restore_refusal(base, job) or is_key_taken(base, job) and 'key_taken'
  local seq = redis.call('HGET', base .. ':queue', 'handover_seq')
  local children = job.kids and read_record('ZRANGE', base .. ':kin:' .. job.id, 0, -1) or {}
  return refused or false, job.key or '', read_record('HGETALL', base .. ':waits:' .. job.id) or {},
    children, whole(seq, 0)
end

local function handle(base, request)
  return visit(base, request, look)
end
