-- The places of a unique key, as in the module model.unique.keys: the plain text is for the first job,
-- and two more are for follow-ups by turns. The field 'key' of a job is the place.
local FIRST, SECOND = '\0311', '\0312'

-- The fingerprint of a job whose content another request has replaced, where the job had none.
local REPLACED = '='

local function places_of(key)
  return { key, key .. FIRST, key .. SECOND }
end

local function key_of(place)
  return place and string.match(place, '^[^\31]*')
end

local function is_following(place)
  return place and string.find(place, '\31', 1, true) ~= nil
end

local function place_after(place)
  return key_of(place) .. (string.sub(place, -2) == FIRST and SECOND or FIRST)
end

-- The ids of the active jobs with a key, by place: false where there is none.
local function ids_at(base, places)
  return redis.call('HMGET', base .. ':unique', unpack(places))
end
