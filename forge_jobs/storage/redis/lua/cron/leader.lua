-- no-writes
-- Answers the leader lease, none when no pod has led yet. Below zero: for so long no lease has held.
-- uses: pods
local function handle(base)
  local holder, term, ends =
    unpack(redis.call('HMGET', base .. ':leader', 'host', 'term', 'until'))
  if not holder then
    return {}
  end
  return { { holder, whole(term, 0), whole(ends, 0) - now, all_queues(base) } }
end
