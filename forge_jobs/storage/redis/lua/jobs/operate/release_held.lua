-- allow-oom
-- Lets blocked jobs run without the parents that hold them.
-- uses: jobs edges places terms filters events seen visits stepping
local function release(base, job)
  local flat, settled = read_record('HGETALL', base .. ':waits:' .. job.id) or {}, {}
  for index = 1, #flat, 2 do
    local state, policy, seq = parse_edge(flat[index + 1])
    if state == 'held' then
      settled[#settled + 1], settled[#settled + 2] = flat[index], 'settled ' .. policy .. ' ' .. seq
    end
  end
  if #settled == 0 then
    return 'waiting'
  end
  call_many('HSET', base .. ':waits:' .. job.id, settled)
  settle_edges(base, job, #settled / 2)
  append_event(base, now, 'released_held', job.id, '', '')
  return 'changed'
end

local function handle(base, request)
  return visit_step(base, request, release)
end
