-- no-writes
-- Those of the kinds that no pod with a live lease has a handler for. A kind: { name, name as JSON }.
-- uses: pods
local function knows(doc, kind)
  -- A pod whose record is spoilt may know any kind.
  if not doc or string.sub(doc, -1) ~= '}' then
    return true
  elseif not string.find(doc, kind[2], 1, true) then
    return false -- Most texts are found without reading them as JSON.
  end
  local is_read, pod = pcall(cjson.decode, doc)
  for _, name in ipairs(is_read and pod.kinds or {}) do
    if name == kind[1] then
      return true
    end
  end
  return not is_read
end

local function handle(base, kinds)
  for _, host in ipairs(redis.call('ZRANGEBYSCORE', base .. ':pods', '(' .. text(now), '+inf')) do
    local doc, left = read_record('HGET', pod_key(base, host), 'doc'), {}
    for _, kind in ipairs(kinds) do
      if not knows(doc, kind) then
        left[#left + 1] = kind
      end
    end
    kinds = left
    if #kinds == 0 then
      break
    end
  end
  local names = {}
  for index, kind in ipairs(kinds) do
    names[index] = kind[1]
  end
  return names
end
