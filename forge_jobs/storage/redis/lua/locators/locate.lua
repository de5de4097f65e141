-- Notes which queue jobs are about to be stored in: per queue { queue, ids, known, before }, the last being
-- the locators that ids have in a hash that is being moved. Answers the ids that are, or were, in another
-- queue, and then writes nothing. Otherwise the marks that were written, in a list of one. An empty list:
-- the locators are elsewhere by now.
-- uses: locators foreign
local function next_mark(ids, id, older)
  local _, _, before = parse_locator(redis.call('HGET', ids, id) or older or '')
  return math.max(before + 1, now)
end

local function handle(base, requests)
  local ids = base .. ':ids'
  local elsewhere, marks = {}, {}
  for _, request in ipairs(requests) do
    local queue, wanted, known, before = unpack(request)
    if find_foreign(queue, { ids, wanted, known, '' }, elsewhere, before) == nil then
      return {}
    end
  end
  for _, request in ipairs(#elsewhere == 0 and requests or {}) do
    local queue, wanted, _, before = unpack(request)
    for _, id in ipairs(wanted) do
      local mark = next_mark(ids, id, before[id])
      redis.call('HSET', ids, id, locator_of(queue, mark))
      marks[#marks + 1] = { id, mark }
    end
  end
  return { { elsewhere, marks } }
end
