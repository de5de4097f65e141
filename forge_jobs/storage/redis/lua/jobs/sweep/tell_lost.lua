-- allow-oom
-- Tells children, or notes them again, that nobody will tell: { parent, child, state of the edge, its
-- queue's tag and failure policy, number of the newest news that counted }. Answers whether it was so.
-- uses: jobs letters endings news standing linking
local function handle(base, edges)
  local answers = {}
  for index, edge in ipairs(edges) do
    local parent, child, state, link, since = unpack(edge)
    answers[index] = is_lost(base, parent, child, state)
    if answers[index] then
      -- News count only when they are newer than what the child has heard.
      local last = whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
      if last < since then
        redis.call('HSET', base .. ':queue', 'handover_seq', text(since))
      end
      write_link(base, parent, 'told', { { child, link } })
    end
  end
  return answers
end
