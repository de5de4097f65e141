-- no-writes
-- Answers per { parent, child, state of the edge } whether no handover will come to the child.
-- uses: jobs letters endings handing standing
local function handle(base, edges)
  local answers = {}
  for index, edge in ipairs(edges) do
    local parent, child, state = unpack(edge)
    answers[index] = is_lost(base, parent, child, state)
  end
  return answers
end
