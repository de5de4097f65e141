-- Locators: hash 'ids' under a base of their own, id -> queue, the second of the write, and, where jobs are
-- stored in a later step, a mark: a number that no later attempt has again.
--
-- Every attempt to store a job writes the locator anew. Before the locator of a job that was never stored
-- is taken away, the mark is barred in the queue.

-- redis.call for a hash of locators, nil when the locators are elsewhere by now. See places.py.
local function try(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    if string.find(reply.err, 'WRONGTYPE', 1, true) then
      return nil
    end
    error(reply)
  end
  return reply
end

local function locator_of(queue, mark)
  return queue .. '\n' .. text(math.floor(now / 1000000)) .. (mark and '\n' .. text(mark) or '')
end

-- Queue, second and mark of a locator.
local function parse_locator(locator)
  local queue, second, mark = string.match(locator, '^([^\n]*)\n(%d+)\n?(%d*)$')
  return queue, tonumber(second), tonumber(mark) or 0
end

-- groups: a list of { hash, ids, known, source }. known has for some of the ids the locator that may be
-- written over although the locator names another queue. source is a hash with locators that this one
-- lacks, '' for none.
local function put_locators(queue, groups)
  local locator = locator_of(queue)
  for _, group in ipairs(groups) do
    local key, ids = unpack(group)
    local pairs_of = {}
    for _, id in ipairs(ids) do
      pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = id, locator
    end
    call_many('HSET', key, pairs_of)
  end
end

-- The writer of a locator stores the job within seconds.
local SETTLED_AFTER = 120

-- Returns the locator, when the locator names the queue and is not new any more. nil: the locator is
-- elsewhere by now.
local function settled_locator(ids, id, queue)
  local locator = try('HGET', ids, id)
  if locator == nil then
    return nil
  end
  local found, second = parse_locator(locator or '')
  return found == queue and second + SETTLED_AFTER <= now / 1000000 and locator
end
