-- Locators: hash 'ids' under a base of their own, id -> queue, the second it was written in, and
-- where jobs are stored in a later step a mark, which counts the moves to another queue.
--
-- One is written anew by every attempt to store its job, and taken away only when it is older
-- than any attempt that may still be under way.

-- ids: the hash's key
local function put_locator(ids, id, queue, mark)
  local second = text(math.floor(now / 1000000))
  redis.call('HSET', ids, id, queue .. '\n' .. second .. (mark and '\n' .. mark or ''))
end

-- Queue, second and mark of a locator.
local function parse_locator(locator)
  local queue, second, mark = string.match(locator, '^([^\n]*)\n(%d+)\n?(%d*)$')
  return queue, tonumber(second), tonumber(mark) or 0
end

-- groups: a list of { hash, { { id, known } .. } }, where known is the locator that may be written
-- over although it names another queue, '' for none
local function put_locators(queue, groups)
  for _, group in ipairs(groups) do
    for _, entry in ipairs(group[2]) do
      put_locator(group[1], entry[1], queue)
    end
  end
end

-- The ids that are, or were, in another queue, each with its locator.
local function foreign_locators(queue, groups)
  local found = {}
  for _, group in ipairs(groups) do
    for _, entry in ipairs(group[2]) do
      local id, known = unpack(entry)
      local locator = redis.call('HGET', group[1], id)
      if locator and locator ~= known and parse_locator(locator) ~= queue then
        found[#found + 1] = { id, locator }
      end
    end
  end
  return found
end

-- An attempt to store a job has at most half a minute, and looks at its locator before.
local SETTLED_AFTER = 120

local function forget_locator(ids, id, queue)
  local found, second = parse_locator(redis.call('HGET', ids, id) or '')
  if found == queue and second + SETTLED_AFTER <= now / 1000000 then
    redis.call('HDEL', ids, id)
  end
end
