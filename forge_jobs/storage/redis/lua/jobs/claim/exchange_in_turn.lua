-- allow-oom
-- Makes claims in a queue with shares, as exchange.lua does, which ends claims there too. The request and the
-- answer are those of exchange.lua.
-- uses: jobs ready reading merging levels finding slots queues claims letters unreadable limiting taking moving turning placing choosing served found claiming
local function handle(base, request)
  local _, _, _, _, demand = unpack(request)
  local by_turns = { choose = choose, merge = merge, finish = finish_turns }
  local claims, strange, unreadable, left = claim(base, demand, by_turns)
  local is_short = #claims < demand[DEMAND.limit]
  if is_short and waits_of[base] ~= nil then
    note_waiting(base)
  end
  local is_more = left ~= '' or #unreadable > 0
  local next_in = is_more and 0 or is_short and earliest_in_lines(base, true) or -1
  local version = #strange > 0 and redis.call('HGET', base .. ':queue', 'kinds_version') or 0
  return { {}, claims, next_in, strange, whole(version, 0), unreadable, left }
end
