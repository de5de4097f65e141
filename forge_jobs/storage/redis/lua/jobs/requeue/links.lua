-- no-writes
-- Answers what a requeue must know of jobs before: per job the id, why the job would be refused (false: no
-- reason), the key, the edges (parent and edge in turn), the children that have yet to hear of an end, with
-- the tags of their queues, and the number of the newest end that was noted here.
-- uses: jobs places terms filters seen visits requeueing handing
local function link(base, job)
  local refused = refusal(base, job) or is_key_taken(base, job) and 'key_taken'
  local children = job.kids and untold(base, job.id) or {}
  local seq = children[1] and redis.call('HGET', base .. ':queue', 'handover_seq')
  return refused or false, job.key or '', read_record('HGETALL', base .. ':waits:' .. job.id) or {},
    children, whole(seq, 0)
end

local function handle(base, request)
  return visit(base, request, link)
end
