-- Says which queue jobs are about to be stored in: per queue { queue, ids, known }. Answers
-- the ids that are, or were, in another, and then writes nothing; else the marks that were written.
-- uses: locators
local function next_mark(ids, id)
  local _, _, before = parse_locator(redis.call('HGET', ids, id) or '')
  return math.max(before + 1, now)
end

local function handle(base, requests)
  local ids = base .. ':ids'
  local elsewhere, marks = {}, {}
  for _, request in ipairs(requests) do
    local queue, wanted, known = unpack(request)
    find_foreign(queue, ids, wanted, known, elsewhere)
  end
  for _, request in ipairs(#elsewhere == 0 and requests or {}) do
    local queue, wanted = unpack(request)
    for _, id in ipairs(wanted) do
      local mark = next_mark(ids, id)
      redis.call('HSET', ids, id, locator_of(queue, mark))
      marks[#marks + 1] = { id, mark }
    end
  end
  return { elsewhere, marks }
end
