-- allow-oom
-- Records that the handlers of claims (id, token, pod) start. Answers per item false when the claim is
-- lost.
-- uses: jobs claims
local function handle(base, claims)
  local answers = {}
  for index, one in ipairs(claims) do
    local id, token, host = unpack(one)
    answers[index] = is_current(load(base, id), token, host)
    if answers[index] then
      mark_started(base, id)
    end
  end
  return answers
end
