-- Says which queue jobs are about to be stored in: per queue { queue, { { id, known } .. } }. Answers
-- the ids that are, or were, in another, and then writes nothing; else the marks that were written;
-- and the time.
-- uses: locators
local function next_mark(ids, id, queue)
  local locator = redis.call('HGET', ids, id)
  if not locator then
    return 1
  end
  local found, _, mark = parse_locator(locator)
  return found == queue and mark or mark + 1
end

local function handle(base, requests)
  local ids = base .. ':ids'
  local elsewhere, marks = {}, {}
  for _, request in ipairs(requests) do
    local queue, entries = unpack(request)
    for _, one in ipairs(foreign_locators(queue, { { ids, entries } })) do
      elsewhere[#elsewhere + 1] = one
    end
  end
  for _, request in ipairs(#elsewhere == 0 and requests or {}) do
    local queue, entries = unpack(request)
    for _, entry in ipairs(entries) do
      local mark = next_mark(ids, entry[1], queue)
      put_locator(ids, entry[1], queue, mark)
      marks[#marks + 1] = { entry[1], mark }
    end
  end
  return { elsewhere, marks, now }
end
