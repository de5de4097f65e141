-- Answers per child, parent and number of an end whether the child knows of the end of the parent: the edge
-- has settled, or the child was cancelled with the parent. bars: of others, ends up to that number have no
-- effect from now on.
-- uses: jobs edges
local function knows(base, child, state)
  local status, cause = unpack(redis.call('HMGET', base .. ':j:' .. child, 'status', 'cause'))
  if not WAITS[state] then
    return not (status == 'cancelled' and cause == 'cancelled')
  end
  return state == 'held' and status == 'cancelled' and cause == 'parent_failed'
end

local function handle(base, request)
  local bars, pairs = unpack(request)
  local answers = {}
  for index, pair in ipairs(pairs) do
    local child, parent, seq = unpack(pair)
    local state, policy, since = read_edge(base, child, parent)
    answers[index] = state ~= nil and knows(base, child, state)
    if bars and state and not answers[index] and tonumber(since) < seq then
      write_edge(base, child, parent, state, policy, seq)
    end
  end
  return answers
end
