-- Finds jobs about to be stored that are, or were, in another queue. Used with locators.

-- Returns the locators of ids from `first` to `last`, false for none. nil when they are elsewhere by now.
local function read_locators(group, first, last)
  local key, ids, _, source = unpack(group)
  local read = try('HMGET', key, unpack(ids, first, last))
  if not read or source == '' then
    return read
  end
  for offset, locator in ipairs(redis.call('HMGET', source, unpack(ids, first, last))) do
    read[offset] = read[offset] or locator
  end
  return read
end

-- Adds to `found` the ids that are, or were, in another queue, with their locators. Returns whether any id
-- has a locator at all, nil when the locators are elsewhere by now. before: id -> locator of ids that have
-- one in another slot.
local function find_foreign(queue, group, found, before)
  local _, ids, known = unpack(group)
  local any = false
  for first = 1, #ids, 400 do
    local last = math.min(first + 399, #ids)
    local read = read_locators(group, first, last)
    if not read then
      return nil
    end
    for offset, locator in ipairs(read) do
      local id = ids[first + offset - 1]
      locator = locator or before and before[id] or false
      any = any or locator
      if locator and locator ~= known[id] and parse_locator(locator) ~= queue then
        found[#found + 1] = { id, locator }
      end
    end
  end
  return any
end

-- Returns the ids that are, or were, in another queue, and whether any has a locator. nil as above.
local function foreign_locators(queue, groups)
  local found, any = {}, false
  for _, group in ipairs(groups) do
    local has = find_foreign(queue, group, found)
    if has == nil then
      return nil
    end
    any = has or any
  end
  return found, any
end
