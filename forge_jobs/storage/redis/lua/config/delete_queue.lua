-- allow-oom
-- Forgets a queue without jobs that no live pod declares. Answers whether there is such a queue, how many
-- jobs are there, and how many live pods declare the queue.
-- uses: queues slots
local STATUSES = { 'blocked', 'pending', 'failed', 'done', 'dead', 'cancelled' }
-- Numbers that only grow stay: others compare with what they were.
local KEPT = { version = true, kinds_version = true, handover_seq = true }

local function handle(base)
  if not has_queue(base) then
    return { false, 0, 0 }
  end
  local jobs, pods = redis.call('ZCARD', base .. ':claimed'), 0
  for _, status in ipairs(STATUSES) do
    jobs = jobs + redis.call('ZCARD', base .. ':s:' .. status)
  end
  for _, slot in pairs(load_slots(base)) do
    pods = pods + (is_live(slot) and 1 or 0)
  end
  if jobs == 0 and pods == 0 then
    for _, field in ipairs(redis.call('HKEYS', base .. ':queue')) do
      if not KEPT[field] then
        redis.call('HDEL', base .. ':queue', field)
      end
    end
    redis.call('DEL', base .. ':slots', base .. ':flow_totals', base .. ':at_most', base .. ':parks')
    redis.call('DEL', base .. ':turns')
    move_version(base)
    wake('beat')
    wake('fleet')
  end
  return { true, jobs, pods }
end
