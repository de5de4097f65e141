-- allow-oom
-- Notes that no old hash of locators has anything left, and which programs work with the store; see
-- late_check.py.
local function handle(base, works_from)
  redis.call('SET', base .. ':ids', 'all from=' .. text(works_from))
  return true
end
