-- In the place of cancels, places, holders, meeting and replacing, for scripts whose requests have no unique keys:
-- names that nothing calls, for every run of a script makes each of its functions anew.
local REPLACED = '='
local end_waiting, is_follow_up, meet, open_window, write_replacements -- luacheck: ignore 221
