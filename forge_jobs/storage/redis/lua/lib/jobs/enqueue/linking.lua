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

-- The end of a parent that has ended is handed over at once. The link of a job of a sequence, or of one that was
-- stored before, ends with ' ?': the job may be in line behind this very parent, or have that edge already,
-- which the stored edge says.
local function write_link(base, id, otherwise, edges)
  local flat = {}
  for _, entry in ipairs(edges) do
    local child, link = unpack(entry)
    local tag, word, is_member = string.match(link, '^(%S+) (%S+)(.*)$')
    if is_member ~= '' then
      local edge = tag == base:match('{(.*)}') and redis.call('HGET', base .. ':waits:' .. child, id)
      link = tag .. ' ' .. (edge and string.match(edge, '^%S+ (%S+) ') or word)
    end
    flat[#flat + 1], flat[#flat + 2] = child, link
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
