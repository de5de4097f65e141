-- Notes children with their parents: per parent { id, is coming, { { child, edge } .. } }. A parent
-- that is coming may not be stored yet. Answers the parents that are missing, then nothing is
-- written, and the time. The children of a parent that has ended are told at once.
-- uses: jobs endings
local UNDER_WAY = 60000

check = function(base, parents)
  local missing = {}
  for _, parent in ipairs(parents) do
    local id, is_coming = unpack(parent)
    if not is_coming and redis.call('EXISTS', base .. ':j:' .. id) == 0 then
      missing[#missing + 1] = id
    end
  end
  return #missing > 0 and { missing, now } or nil
end

local function note(base, id, edges)
  local kids = base .. ':kids:' .. id
  local flat = {}
  for _, edge in ipairs(edges) do
    flat[#flat + 1] = edge[1]
    flat[#flat + 1] = edge[2]
  end
  call_many('HSET', kids, flat)
  local status = redis.call('HGET', base .. ':j:' .. id, 'status')
  if not status then
    redis.call('PEXPIRE', kids, UNDER_WAY)
  elseif ENDED[status] then
    tell_children(base, id, status)
  else
    redis.call('HSET', base .. ':j:' .. id, 'kids', '1', 'more', '1')
  end
end

local function handle(base, parents)
  for _, parent in ipairs(parents) do
    note(base, parent[1], parent[3])
  end
  return { {}, now }
end
