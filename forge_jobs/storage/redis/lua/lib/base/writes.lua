-- Writes of many arguments, and writes to indexes that are done once at the end. Goes with start.lua.

-- redis.call with any number of arguments after the key. `unpack` has a limit.
local function call_many(command, key, arguments)
  local number = #arguments
  for first = 1, number, 400 do
    redis.call(command, key, unpack(arguments, first, number < first + 399 and number or first + 399))
  end
end

-- Writes to indexes, collected: one call for many jobs. flush_writes does them, at the end of the script or
-- before the index is read. A job may change its place once in between.
local writes = { ZREM = {}, ZADD = {}, SREM = {} }
local order = {}

-- of one member, or of a score and a member
local function later(command, key, first, second)
  local arguments = writes[command][key]
  if not arguments then
    arguments = {}
    writes[command][key] = arguments
    order[#order + 1] = { command, key }
  end
  arguments[#arguments + 1] = first
  arguments[#arguments + 1] = second
end

-- Returns whether an error says that a key holds something of another type.
local function is_wrong_type(error)
  local words = type(error) == 'table' and error.err or error
  return type(words) == 'string' and string.find(words, 'WRONGTYPE', 1, true) ~= nil
end

-- Returns the answer of a command on a key of one record, nil when the key holds something else.
local function read_record(...)
  local answer = redis.pcall(...)
  if type(answer) ~= 'table' or not answer.err then
    return answer
  end
end

-- How many commands a script that reads many bases has run, as far as the script says.
local spent = 0

local function spend(commands)
  spent = spent + commands
end

local function drop_writes()
  writes, order = { ZREM = {}, ZADD = {}, SREM = {} }, {}
end

-- After an error: each by itself.
local function flush_what_can_be()
  for _, write in ipairs(order) do
    local arguments = writes[write[1]][write[2]]
    if arguments then
      pcall(call_many, write[1], write[2], arguments)
    end
  end
  drop_writes()
end

local function flush_writes()
  for _, write in ipairs(order) do
    local command, key = write[1], write[2]
    call_many(command, key, writes[command][key])
    writes[command][key] = nil
  end
  order = {}
end
