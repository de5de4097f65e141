-- no-writes
-- Per news (seq, child) whether it is still to be told.
local function handle(base, news)
  local answers = {}
  for index, each in ipairs(news) do
    local seq, child = unpack(each)
    answers[index] = read_record('HEXISTS', base .. ':told:' .. seq, child) == 1
  end
  return answers
end
