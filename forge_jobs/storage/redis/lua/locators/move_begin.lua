-- allow-oom
-- Begins to move an old hash of locators: from now on none is written there. Answers the text under the
-- key.
-- uses: locators
local function handle(base)
  local ids = base .. ':ids'
  local size = try('HLEN', ids)
  if size then
    if size > 0 then
      redis.call('RENAME', ids, base .. ':from')
    end
    redis.call('SET', ids, size > 0 and 'moving' or 'moved')
  end
  return redis.call('GET', ids)
end
