-- no-writes
-- Answers per job the status ('' when there is no such job) and the kind, and of a child the edge to the
-- parent, '' without one: { id, parent or '' }.
local function handle(base, asked)
  local answers = {}
  spend(2 * #asked)
  for index, each in ipairs(asked) do
    local id, parent = unpack(each)
    local status, kind = unpack(read_fields(base .. ':j:' .. id, 'status', 'kind'))
    local edge = parent ~= '' and read_record('HGET', base .. ':waits:' .. id, parent)
    answers[index] = { status or '', kind or '', edge or '' }
  end
  return answers
end
