-- allow-oom
-- Hands ends over to children, or notes the children again, where no handover will come: { parent, child,
-- state of the edge, tag of the child's queue and failure policy, number of the newest handover that
-- counted }. Answers whether no handover would have come.
-- uses: jobs letters endings handing linking standing
local function handle(base, edges)
  local answers = {}
  for index, edge in ipairs(edges) do
    local parent, child, state, link, since = unpack(edge)
    answers[index] = is_lost(base, parent, child, state)
    if answers[index] then
      tell_anew(base, parent, child, link, since)
    end
  end
  return answers
end
