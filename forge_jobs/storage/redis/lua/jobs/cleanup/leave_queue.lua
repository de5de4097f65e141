-- allow-oom
-- Takes away the last of a queue that has been deleted, once the queue has no history either. Answers
-- whether nothing of the queue is left.
-- uses: queues
local LISTS = {
  'claimed', 'minutes', 'hours', 'unfolded', 'events', 'handovers', 'letters', 'gone', 'barred',
  'errors', 'error_hours', 'flow_minutes', 'flow_hours',
}
local STATUSES = { 'blocked', 'pending', 'failed', 'done', 'dead', 'cancelled' }

local function handle(base)
  local found = has_queue(base) and 1 or 0
  for _, list in ipairs(LISTS) do
    found = found + redis.call('EXISTS', base .. ':' .. list)
  end
  for _, status in ipairs(STATUSES) do
    found = found + redis.call('EXISTS', base .. ':s:' .. status)
  end
  if found == 0 then
    for _, name in ipairs({ 'queue', 'slots', 'event_seq', 'unlocated', 'flow_totals' }) do
      redis.call('DEL', base .. ':' .. name)
    end
  end
  return found == 0
end
