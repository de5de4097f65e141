-- alone
-- Stores one plain job, with a new id, in a queue that is there. Answers 0, and has changed nothing, when
-- enqueue.lua must store the job. Stores what inserting.lua does, without requests, templates and lists,
-- which cost more than the commands.
--
-- KEYS: the base, the hash of locators. ARGV: the time, the queue and the channel, then id, payload, kind,
-- priority and doc of the job, and how wake-ups are published.
-- uses: locators
local base, ids, queue = KEYS[1], KEYS[2], ARGV[2]
local id, kind, priority = ARGV[4], ARGV[6], ARGV[7]
local workers, waits = unpack(redis.call('HMGET', base .. ':queue', 'max_workers', 'waits'))
if not workers
  or redis.pcall('HSETNX', ids, id, locator_of(queue)) ~= 1 then
  return 0
end
local time, line = text(now), priority .. ' n ' .. kind
-- The job itself last: where a list is of another type nothing is stored.
redis.call('ZADD', base .. ':ready:' .. line, time, id)
redis.call('ZADD', base .. ':lines', 'LT', line_score(priority, now), line)
redis.call('ZADD', base .. ':s:pending', 0, id)
redis.call('ZADD', base .. ':kind:' .. kind, 0, id)
redis.call(
  'HSET', base .. ':j:' .. id, 'status', 'pending', 'payload', ARGV[5], 'cause', 'enqueued',
  'kind', kind, 'priority', priority, 'run_at', time, 'enqueued', time, 'token', time,
  'doc', ARGV[8]
)
count('enqueued', '', 1)
flush_counts(base)
waits_of[base] = waits
wake_queue(base)
flush_topics()
return 1
