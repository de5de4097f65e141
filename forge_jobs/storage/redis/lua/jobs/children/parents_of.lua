-- no-writes
-- Answers per child the jobs that the child was enqueued after, in no order.
-- uses: jobs edges
local function handle(base, children)
  local found = {}
  for index, id in ipairs(children) do
    local flat = read_record('HGETALL', base .. ':waits:' .. id) or {}
    found[index] = {}
    for at = 1, #flat, 2 do
      table.insert(found[index], flat[at])
    end
  end
  return found
end
