-- Progress and logs. Hash 'prog:<id>': '' -> packed { token, at, JSON of the progress }, attempt -> packed
-- { token, count of the last line in the run, number of that line in the attempt, bytes of all lines }.
-- List 'log:<id>:<attempt>': packed lines { number, at, level, text, token, bytes of earlier lines }.
local HEAD = { 'number', 'number', 'number', 'number' }
local LINE = { 'number', 'number', 'number', 'string', 'number', 'number' }

local function log_key(base, id, attempt)
  return base .. ':log:' .. id .. ':' .. text(attempt)
end

-- The attempts of a job { attempt, token ... }, by the token of the last run.
local function attempts_of(base, id)
  local found = {}
  local fields = read_record('HGETALL', base .. ':prog:' .. id) or {}
  for index = 1, #fields, 2 do
    local attempt = whole(fields[index])
    local head = attempt and unpacked(fields[index + 1], HEAD)
    if head then
      found[#found + 1] = { attempt, unpack(head) }
    end
  end
  table.sort(found, function(one, other)
    return one[2] < other[2]
  end)
  return found
end
