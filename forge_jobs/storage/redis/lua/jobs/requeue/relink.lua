-- allow-oom
-- Lets children wait for parents again. Per parent { id, { { child, edge, whether the child waits also for
-- a parent that ended without success } .. } }. Answers per parent the status ('' when the parent is gone)
-- and the number of the queue's last handover. Handovers up to that number have no effect once the child is
-- requeued. Until then they stand, as a requeue of the parent must know of them.
-- uses: jobs letters endings handing
local function relink(base, parent, children)
  local status = redis.call('HGET', base .. ':j:' .. parent, 'status')
  local seq = whole(redis.call('HGET', base .. ':queue', 'handover_seq'), 0)
  if not status then
    return { '', seq }
  end
  local flat = {}
  for _, noted in ipairs(children) do
    local child, edge, waits = unpack(noted)
    if not ENDED[status] or waits and status ~= 'done' then
      flat[#flat + 1], flat[#flat + 2] = child, edge
    end
  end
  if #flat > 0 then
    note_children(base, parent, flat)
  end
  return { status, seq }
end

local function handle(base, parents)
  local answers = {}
  for index, each in ipairs(parents) do
    local parent, children = unpack(each)
    answers[index] = relink(base, parent, children)
  end
  return answers
end
