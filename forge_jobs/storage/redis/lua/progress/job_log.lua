-- no-writes
-- Lines of an attempt of a job with higher numbers than `after`, oldest first: the attempt (of 0: the one
-- that ran last), the lines, all attempts with lines.
-- uses: telling
local function handle(base, request)
  local id, attempt, after, most = unpack(request)
  local attempts, lines, newest = {}, {}, 0
  local found = attempts_of(base, id)
  for _, each in ipairs(found) do
    if each[4] > 0 then
      attempts[#attempts + 1] = each[1]
    end
  end
  if attempt == 0 then
    attempt = attempts[#attempts] or 0
  end
  for _, each in ipairs(found) do
    newest = each[1] == attempt and each[4] or newest
  end
  -- Numbers may be missing, so that there are fewer lines than numbers.
  local key = log_key(base, id, attempt)
  local stored = newest > after and read_record('LRANGE', key, after - newest, -1) or {}
  for _, packed in ipairs(stored) do
    local line = unpacked(packed, LINE)
    if line and line[1] > after and #lines < most then
      lines[#lines + 1] = line
    end
  end
  return { attempt, lines, attempts }
end
