-- allow-oom
-- Applies handovers to children, once each: { child, parent, action, seq }. Answers whether the handover
-- was applied, and a word: 'forget', or 'wait' while a later end of the parent counts. A handover without
-- effect on an edge that waits is answered by the state of the edge in place of a word, and the number up to
-- which none has an effect. A child is stored before the parent notes the child, so a child that is not there
-- has gone.
-- uses: jobs letters endings cancels edges handing linking ordering waited inheriting
-- The states of edges that settle, by action.
local NOTED = { settle = 'settled', dead = 'dead', cancelled = 'cancelled' }

-- Returns whether the job ended before a dead parent, and so did not live to pass the parent. Those behind decide
-- by words of their own.
local function has_no_word(base, job, parent, policy)
  if not (ENDED[job.status] and OF_SEQUENCES[policy]) then
    return false
  end
  local status, at = end_of(base, parent)
  return status == 'dead' and not was_before(at, job.finished or 0)
end

local function deliver(base, each)
  local id, parent, action, seq = unpack(each)
  local job = load(base, id)
  if not job then
    return { false, 'forget', 0 }
  end
  local state, policy, since = read_edge(base, id, parent)
  if not state or state == 'settled' then
    return { false, 'forget', 0 }
  elseif seq <= tonumber(since) then
    return { false, WAITS[state] and state or 'wait', tonumber(since) }
  end
  local open = WAITS[state] and 1 or 0
  state = has_no_word(base, job, parent, policy) and 'held' or NOTED[action] or 'held'
  if open == 1 then
    -- A child that went on by a note of an earlier end may be in front of the parent by now.
    inherit(base, job, parent, policy, WAITS[state])
  end
  write_edge(base, id, parent, state, policy, seq)
  local word = state == 'settled' and 'forget' or 'wait'
  -- A child that has ended may be requeued one day, and must know then how the parent ended.
  if job.status ~= 'blocked' then
    return { false, word, 0 }
  elseif action == 'cancel' then
    cancel_waiting(base, job, 'parent_failed')
  else
    settle_edges(base, job, open - (WAITS[state] and 1 or 0))
  end
  return { true, word, 0 }
end

local function handle(base, deliveries)
  local answers = {}
  for index, each in ipairs(deliveries) do
    answers[index] = deliver(base, each)
  end
  return answers
end
