-- allow-oom
-- Ends claims, then makes new ones: { mode, outcomes, items, stale_after, demand, pod }. demand is false
-- for none. The claims of the items are the pod's, but for those that name another. Answers per item
-- whether the end is settled, and the claims. With fewer claims than asked for also the time until the next
-- job, -1 for none. Then the other kinds that are due, kinds_version, id and reason of each job that was
-- put aside because the job cannot be read, and why due jobs were left.
-- uses: jobs ready reading merging levels finding slots queues claims letters endings outcomes applying plain_ends settling unreadable limiting taking moving found claiming
local function handle(base, request)
  local mode, outcomes, items, stale_after, demand, owner = unpack(request)
  for number, parts in ipairs(outcomes) do
    outcomes[number] = to_outcome(parts)
  end
  local settled = settle(base, outcomes, items, mode, stale_after, owner)
  if not demand then
    return { settled, {}, -1, {}, 0, {}, '' }
  end
  open_freed(base, true)
  flush_writes()
  local claims, strange, unreadable, left = claim(base, demand)
  local is_short = #claims < demand[DEMAND.limit]
  -- A queue that is not there is not known either.
  if is_short and waits_of[base] ~= nil then
    note_waiting(base)
  end
  -- Jobs behind those that were put aside are due too.
  local is_more = left ~= '' or #unreadable > 0
  local next_in = is_more and 0 or is_short and earliest_in_lines(base, true) or -1
  local version = #strange > 0 and redis.call('HGET', base .. ':queue', 'kinds_version') or 0
  return { settled, claims, next_in, strange, whole(version, 0), unreadable, left }
end
