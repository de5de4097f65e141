-- no-writes
-- Answers the commands that this user may not run. A script that meets one in the middle would leave
-- earlier writes behind, so this script runs before any other.
-- request: { { command, how many arguments follow the key } ... }. answer: { command ... }. SPUBLISH and
-- SSUBSCRIBE are named too, which no script needs.
local function handle(base, request)
  local key = base .. ':rights'
  local missing = {}
  local may = redis.acl_check_cmd('PUBLISH', ARGV[3], key)
  if not (may and redis.acl_check_cmd('PUBLISH', ARGV[3] .. ':{}', key)) then
    missing[#missing + 1] = 'PUBLISH'
  end
  for _, command in ipairs({ 'SPUBLISH', 'SSUBSCRIBE' }) do
    if not redis.acl_check_cmd(command, ARGV[3] .. ':{}') then
      missing[#missing + 1] = command
    end
  end
  for _, entry in ipairs(request) do
    local arguments = { key }
    local command, following = unpack(entry)
    for _ = 1, following do
      arguments[#arguments + 1] = key
    end
    if not redis.acl_check_cmd(command, unpack(arguments)) then
      missing[#missing + 1] = command
    end
  end
  return missing
end
