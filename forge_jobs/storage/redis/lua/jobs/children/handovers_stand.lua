-- no-writes
-- Answers per handover (seq, child) whether the handover still waits.
local function handle(base, found)
  local answers = {}
  for index, each in ipairs(found) do
    local seq, child = unpack(each)
    answers[index] = read_record('HEXISTS', base .. ':told:' .. seq, child) == 1
  end
  return answers
end
