-- allow-oom
-- Notes that no old hash of locators has anything left.
local function handle(base)
  redis.call('SET', base .. ':ids', 'all')
  return true
end
