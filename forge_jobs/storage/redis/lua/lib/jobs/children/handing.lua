-- Handovers of ended parents that wait: zset 'handovers' of 'seq parent status' by when the parent ended,
-- hash `told:<seq>` of child -> tag of the child's queue and failure policy.

local records = {}

-- Returns the handovers of a parent: { seq, member, when }. All records are read once.
local function handovers_of(base, parent)
  if not records[base] then
    records[base] = {}
    local listed = redis.call('ZRANGE', base .. ':handovers', 0, -1, 'WITHSCORES')
    for index = 1, #listed, 2 do
      local seq, id = string.match(listed[index], '^(%d+) (%S+) ')
      records[base][id] = records[base][id] or {}
      table.insert(records[base][id], { seq, listed[index], tonumber(listed[index + 1]) })
    end
  end
  return records[base][parent] or {}
end

-- Returns the children that have yet to hear of an end of the parent, each with the tag of the child's queue.
local function untold(base, parent)
  local found = {}
  for _, record in ipairs(handovers_of(base, parent)) do
    local flat = read_record('HGETALL', base .. ':told:' .. record[1]) or {}
    for index = 1, #flat, 2 do
      found[#found + 1] = flat[index] .. ' ' .. string.match(flat[index + 1], '^%S+')
    end
  end
  return found
end

-- Returns whether an end of the parent waits to be handed over that was noted after the one of that number.
local function has_newer_end(base, parent, seq)
  for _, record in ipairs(handovers_of(base, parent)) do
    if tonumber(record[1]) > seq then
      return true
    end
  end
  return false
end

-- Withdraws the handovers of a parent that has not ended after all: the children wait for the next end.
-- Handovers of an earlier job with the same id stay.
local function withdraw_handovers(base, parent)
  local born = tonumber(redis.call('HGET', base .. ':j:' .. parent, 'enqueued'))
  for _, record in ipairs(handovers_of(base, parent)) do
    local seq, member, at = unpack(record)
    if at >= born then
      local told = base .. ':told:' .. seq
      call_many('HSET', base .. ':kids:' .. parent, read_record('HGETALL', told) or {})
      redis.call('DEL', told)
      redis.call('ZREM', base .. ':handovers', member)
    end
  end
end

-- Notes children with a parent that is stored. The parent's next end is handed over to them, unless they
-- are only listed. flat: children and edges, which begin with the tag of the child's queue, in turn.
local function note_children(base, parent, flat, only_lists)
  local members = {}
  for index = 1, #flat, 2 do
    members[index], members[index + 1] = 0, flat[index] .. ' ' .. string.match(flat[index + 1], '^%S+')
  end
  if not only_lists then
    call_many('HSET', base .. ':kids:' .. parent, flat)
  end
  -- Of no consequence for the parent's end.
  pcall(call_many, 'ZADD', base .. ':kin:' .. parent, members)
  redis.call('HSET', base .. ':j:' .. parent, 'kids', '1', 'more', '1')
end
