-- Replaces the checkpoint of a job { id, token, pod, text }. Answers false when the claim is not the
-- current one.
local function handle(base, request)
  local id, token, host, value = unpack(request)
  local v = read_fields(base .. ':j:' .. id, 'status', 'token', 'host')
  if v[1] ~= 'in_progress' or whole(v[2]) ~= token or v[3] ~= host then
    return false
  end
  redis.call('SET', base .. ':ckpt:' .. id, value)
  return true
end
