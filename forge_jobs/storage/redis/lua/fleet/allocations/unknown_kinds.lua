-- no-writes
-- { kinds, hosts }: those of the kinds that no pod with a live lease has a handler for, and the hosts of
-- the pods that are left for a further step, which names them. A kind: { name, name as JSON }.
-- uses: pods

-- Most texts are searched without reading them as JSON, which is done once for all kinds.
local function is_named(doc, kinds)
  for _, kind in ipairs(kinds) do
    local _, quoted = unpack(kind)
    if string.find(doc, quoted, 1, true) then
      return true
    end
  end
  return false
end

-- The kinds that the pod does not know. A pod whose record is spoilt may know any.
local function unknown_to(doc, kinds)
  if not doc or string.sub(doc, -1) ~= '}' then
    return {}
  elseif not is_named(doc, kinds) then
    return kinds
  end
  local is_read, pod = pcall(cjson.decode, doc)
  if not is_read then
    return {}
  end
  local known, left = {}, {}
  for _, name in ipairs(pod.kinds or {}) do
    known[name] = true
  end
  for _, kind in ipairs(kinds) do
    local name = unpack(kind)
    left[#left + 1] = not known[name] and kind or nil
  end
  return left
end

local function handle(base, request)
  local kinds, named = unpack(request)
  local hosts, rest = part_of_pods(
    #named > 0 and named or redis.call('ZRANGEBYSCORE', base .. ':pods', '(' .. text(now), '+inf')
  )
  for _, host in ipairs(hosts) do
    if #kinds == 0 then
      break
    end
    kinds = unknown_to(read_record('HGET', pod_key(base, host), 'doc'), kinds)
  end
  local names = {}
  for index, kind in ipairs(kinds) do
    names[index] = unpack(kind, 1, 1)
  end
  return { names, rest }
end
