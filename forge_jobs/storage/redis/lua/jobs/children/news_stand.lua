-- no-writes
-- Per news (seq, child) whether it is still to be told.
local function handle(base, news)
  local answers = {}
  for index, each in ipairs(news) do
    answers[index] = read_record('HEXISTS', base .. ':told:' .. each[1], each[2]) == 1
  end
  return answers
end
