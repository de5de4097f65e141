-- no-writes
-- Answers the pairs of parent and child for which a handover waits here.
-- uses: handing
local function handle(base, pairs)
  local found = {}
  for _, pair in ipairs(pairs) do
    local parent, child = unpack(pair)
    for _, record in ipairs(handovers_of(base, parent)) do
      if read_record('HEXISTS', base .. ':told:' .. record[1], child) == 1 then
        found[#found + 1] = pair
      end
    end
  end
  return found
end
