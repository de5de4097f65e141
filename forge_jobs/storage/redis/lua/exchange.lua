-- allow-oom
-- Ends claims, then makes new ones: { mode, outcomes, items, stale_after, demand, pod };
-- demand is false for none. The claims of the items are the pod's, but for those that name another.
-- Answers per item whether it is settled, the claims, and when there are fewer than asked for the
-- time until the next job, -1 for none; then the other kinds that are due, and kinds_version.
-- uses: jobs ready finding slots queues claims endings outcomes settling claiming
local function handle(base, request)
  local mode, outcomes, items, stale_after, demand, owner = unpack(request)
  for number, parts in ipairs(outcomes) do
    outcomes[number] = to_outcome(parts)
  end
  local settled = settle(base, outcomes, items, mode, stale_after, owner)
  if not demand then
    return { settled, {}, -1, {}, 0 }
  end
  flush_writes()
  local claims, strange = claim(base, demand)
  local is_short = #claims < demand[4]
  -- A queue that is not there is not known either.
  if is_short and waits_of[base] ~= nil then
    note_waiting(base)
  end
  local next_in = is_short and next_due(base) or -1
  local version = #strange > 0 and redis.call('HGET', base .. ':queue', 'kinds_version') or 0
  return { settled, claims, next_in, strange, tonumber(version or 0) }
end
