-- no-writes
-- Those of the pairs of parent and child that there is news for here.
-- uses: news
local function handle(base, pairs)
  local found = {}
  for _, pair in ipairs(pairs) do
    local parent, child = unpack(pair)
    for _, record in ipairs(news_of(base, parent)) do
      if read_record('HEXISTS', base .. ':told:' .. record[1], child) == 1 then
        found[#found + 1] = pair
      end
    end
  end
  return found
end
