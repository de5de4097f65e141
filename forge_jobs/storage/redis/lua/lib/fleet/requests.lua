-- Requests to pods. Hash 'ask:<id>': host, epoch, verb, by, asked, until, heard, answered, done ('1'),
-- answer. List 'asks:<host>': the newest of a pod. Field 'asked' of the pod's hash: until when one of the
-- present registration waits. Goes with pods.lua.

local REQUEST_FIELDS = {
  'host', 'epoch', 'verb', 'by', 'asked', 'until', 'heard', 'answered', 'done', 'answer',
}

local function request_key(base, id)
  return base .. ':ask:' .. id
end

local function requests_of(base, host)
  return redis.call('LRANGE', base .. ':asks:' .. host, 0, -1)
end

-- A request as REQUEST_FIELDS lists the parts, '' for what is not set, with the id last. nil for none, and
-- for one older than `kept`.
local function read_request(base, id, kept)
  local fields = read_fields(request_key(base, id), unpack(REQUEST_FIELDS))
  local asked = whole(fields[5])
  if not asked or asked <= now - kept then
    return nil
  end
  for index in ipairs(REQUEST_FIELDS) do
    fields[index] = fields[index] or ''
  end
  fields[#REQUEST_FIELDS + 1] = id
  return fields
end

-- Returns whether a request waits for an answer of this registration.
local function is_open(fields, epoch)
  return fields[2] == epoch and fields[8] == '' and whole(fields[6], 0) > now
end
