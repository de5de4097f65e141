-- allow-oom
-- Lets blocked jobs run without the parents that hold them.
-- uses: jobs edges places terms filters events seen visits stepping
local function release(base, job)
  local waits, released = unsettled(base, job.id), 0
  for index = 1, #waits, 2 do
    if waits[index + 1] == 'held' then
      local _, policy, seq = read_edge(base, job.id, waits[index])
      write_edge(base, job.id, waits[index], 'settled', policy, seq)
      released = released + 1
    end
  end
  if released == 0 then
    return 'waiting'
  end
  settle_edges(base, job, released)
  append_event(base, now, 'released_held', job.id, '', '')
  return 'changed'
end

local function handle(base, request)
  return visit_step(base, request, release)
end
