-- allow-oom
-- Notes under the key of an old hash of locators that no old hash has anything left, and from which version
-- on programs work with the store. See late_check.py. { version, whether nothing is left: else only a note
-- that is there is raised }. No note is ever lowered.
-- uses: locators
local function handle(base, request)
  local works_from, is_end = unpack(request)
  local ids = base .. ':ids'
  local state = try('HLEN', ids) and '' or redis.call('GET', ids)
  local noted = tonumber(string.match(state, '^all from=(%d+)$'))
  if is_end or noted then
    redis.call('SET', ids, 'all from=' .. text(math.max(works_from, noted or 0)))
  end
  return true
end
