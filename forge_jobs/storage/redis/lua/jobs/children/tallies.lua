-- no-writes
-- Answers per child how many edges are open, held, settled, dead and cancelled, in this order. {}: the child
-- has no edges. The child waits by an edge that cannot be read.
-- uses: jobs edges
local PLACES = { open = 1, held = 2, settled = 3, dead = 4, cancelled = 5 }

local function handle(base, children)
  local found = {}
  for index, id in ipairs(children) do
    local flat = read_record('HGETALL', base .. ':waits:' .. id) or {}
    local numbers = #flat > 0 and { 0, 0, 0, 0, 0 } or {}
    for at = 2, #flat, 2 do
      local place = PLACES[parse_edge(flat[at]) or 'open'] or PLACES.open
      numbers[place] = numbers[place] + 1
    end
    found[index] = numbers
  end
  return found
end
