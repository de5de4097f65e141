-- Notes children with their parents: per parent { id, is coming, { { child, edge } .. } }. A parent
-- that is coming may not be stored yet. Answers the parents that are missing, then nothing is
-- written, and the time. The children of a parent that has ended are told at once.
-- uses: jobs endings news
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
  local flat = {}
  for _, edge in ipairs(edges) do
    flat[#flat + 1] = edge[1]
    flat[#flat + 1] = edge[2]
  end
  local status = redis.call('HGET', base .. ':j:' .. id, 'status')
  if not status then
    call_many('HSET', base .. ':kids:' .. id, flat)
    redis.call('PEXPIRE', base .. ':kids:' .. id, UNDER_WAY)
  elseif ENDED[status] then
    call_many('HSET', add_news(base, id, status), flat)
    -- It may be requeued, and end again.
    redis.call('HSET', base .. ':j:' .. id, 'kids', '1', 'more', '1')
  else
    note_children(base, id, flat)
  end
end

local function handle(base, parents)
  for _, parent in ipairs(parents) do
    note(base, parent[1], parent[3])
  end
  return { {}, now }
end
