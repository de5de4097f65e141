-- Locators: hash 'ids' under a base of their own, id -> queue, the second it was written in, and
-- where jobs are stored in a later step a mark, a number that no later attempt has again.
--
-- One is written anew by every attempt to store its job. Before one of a job that was never stored
-- is taken away, its mark is barred in the queue.

local function locator_of(queue, mark)
  return queue .. '\n' .. text(math.floor(now / 1000000)) .. (mark and '\n' .. text(mark) or '')
end

-- Queue, second and mark of a locator.
local function parse_locator(locator)
  local queue, second, mark = string.match(locator, '^([^\n]*)\n(%d+)\n?(%d*)$')
  return queue, tonumber(second), tonumber(mark) or 0
end

-- groups: a list of { hash, ids, known }, where known has for some of the ids the locator that may be
-- written over although it names another queue
local function put_locators(queue, groups)
  local locator = locator_of(queue)
  for _, group in ipairs(groups) do
    local pairs_of = {}
    for _, id in ipairs(group[2]) do
      pairs_of[#pairs_of + 1], pairs_of[#pairs_of + 2] = id, locator
    end
    call_many('HSET', group[1], pairs_of)
  end
end

-- Adds to `found` the ids that are, or were, in another queue, each with its locator; answers whether
-- any has a locator at all.
local function find_foreign(queue, key, ids, known, found)
  local any = false
  for first = 1, #ids, 400 do
    local last = math.min(first + 399, #ids)
    for offset, locator in ipairs(redis.call('HMGET', key, unpack(ids, first, last))) do
      local id = ids[first + offset - 1]
      any = any or locator
      if locator and locator ~= known[id] and parse_locator(locator) ~= queue then
        found[#found + 1] = { id, locator }
      end
    end
  end
  return any
end

-- The ids that are, or were, in another queue, and whether any has a locator.
local function foreign_locators(queue, groups)
  local found, any = {}, false
  for _, group in ipairs(groups) do
    any = find_foreign(queue, group[1], group[2], group[3], found) or any
  end
  return found, any
end

-- Whoever writes one stores its job within seconds.
local SETTLED_AFTER = 120

-- The locator, when it names the queue and is not new any more.
local function settled_locator(ids, id, queue)
  local locator = redis.call('HGET', ids, id)
  local found, second = parse_locator(locator or '')
  return found == queue and second + SETTLED_AFTER <= now / 1000000 and locator
end
