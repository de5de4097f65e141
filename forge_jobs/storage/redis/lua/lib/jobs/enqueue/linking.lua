-- Links: children that are stored are noted with a parent, whose end is handed over to them. Used with
-- jobs, endings and handing.
--
-- A link: { parent, what if there is no parent, { { child, edge } .. } }. 'missing': a refusal. 'told': as
-- of a parent that was removed before the end. 'left': nothing.

local function missing_parents(base, links)
  local missing = {}
  for _, link in ipairs(links) do
    local parent, otherwise = unpack(link)
    if otherwise == 'missing' and redis.call('EXISTS', base .. ':j:' .. parent) == 0 then
      missing[#missing + 1] = { parent, '' }
    end
  end
  return missing
end

-- The end of a parent that has ended is handed over at once.
local function write_link(base, id, otherwise, edges)
  local flat = {}
  for _, edge in ipairs(edges) do
    flat[#flat + 1], flat[#flat + 2] = edge[1], edge[2]
  end
  local status = redis.call('HGET', base .. ':j:' .. id, 'status')
  if status and not ENDED[status] then
    note_children(base, id, flat)
  elseif status or otherwise ~= 'left' then
    call_many('HSET', add_handover(base, id, status or 'cancelled'), flat)
  end
  if status and ENDED[status] then
    -- The parent may be requeued, and end again.
    note_children(base, id, flat, true)
  end
end

local function write_links(base, links)
  for _, link in ipairs(links) do
    local parent, otherwise, edges = unpack(link)
    write_link(base, parent, otherwise, edges)
  end
end
