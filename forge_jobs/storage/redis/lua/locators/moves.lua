-- no-writes
-- Answers the text under the key of an old hash of locators ('' for locators or nothing), how many locators
-- are still to be moved, and the time. See places.py.
-- uses: locators
local function handle(base)
  local ids = base .. ':ids'
  local state = try('HLEN', ids) and '' or redis.call('GET', ids)
  return { state, redis.call('HLEN', base .. ':from'), now }
end
