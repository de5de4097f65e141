-- Puts a settled record in the place of the one that was read. Another one stays.
local function handle(base, request)
  local id, before, document = unpack(request)
  local key = base .. ':action:' .. id
  if redis.call('HGET', key, 'document') ~= before then
    return false
  end
  redis.call('HSET', key, 'document', document)
  return true
end
