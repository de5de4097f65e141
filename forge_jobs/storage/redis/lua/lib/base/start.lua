-- Begins every script: the clock.
--
-- KEYS: the bases that the script works on, one per request, then any other keys. ARGV: the time in
-- microseconds ('' for the server's), the requests (msgpack, in the order of the bases), the channel for
-- wake-ups. Times stay below 2^53, so numbers hold them exactly.

local DAY = 86400 * 1000000

local HOUR = 3600 * 1000000

local function hour_of(minute)
  return minute - minute % HOUR
end

local function server_time()
  local parts = redis.call('TIME')
  return parts[1] * 1000000 + parts[2]
end

local now = ARGV[1] == '' and server_time() or tonumber(ARGV[1])

-- Some scripts set these functions: see run.lua.
local check, at_end -- luacheck: ignore 221

-- Returns a stored whole number, `otherwise` where there is none, or one that this package never writes.
-- most: 2 ^ 53 where left out. Numbers beyond that are not exact.
local function whole(value, otherwise, most)
  local number = value and tonumber(value)
  if number and number % 1 == 0 and number <= (most or 2 ^ 53) and number >= -2 ^ 53 then
    return number
  end
  return otherwise
end

-- Returns a packed list whose parts are of these types, numbers being whole. nil for anything else.
local function unpacked(packed, types)
  local is_read, values = pcall(cmsgpack.unpack, packed)
  if not is_read or type(values) ~= 'table' then
    return nil
  end
  for index, wanted in ipairs(types) do
    local value = values[index]
    if type(value) ~= wanted or wanted == 'number' and not whole(value) then
      return nil
    end
  end
  return values
end

-- Returns fields of a hash, as HMGET gives them, none when the key holds something else.
local function read_fields(key, ...)
  local values = redis.pcall('HMGET', key, ...)
  return values.err and {} or values
end

-- Returns a whole number as text. '..' would round the number to 14 digits.
local function text(number)
  return string.format('%.0f', number)
end

local now_text = text(now)

-- True when '<' compares byte by byte here, as sorted sets do. '<' follows the locale that the server was
-- started in: elsewhere 'B' stands behind 'a', digits behind letters, and hyphens count for nothing.
local FOLLOWS_BYTES = 'B' < 'a' and '9' < 'A' and 'CZ' < 'H' and 'CH' < 'D' and 'a-b' < 'aa'

-- Returns whether a text stands before another one in a sorted set.
local function is_before(one, other)
  if FOLLOWS_BYTES then
    return one < other
  end
  for index = 1, math.min(#one, #other) do
    local left, right = one:byte(index), other:byte(index)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end
