-- loses: SELECT 'series' FROM forge_series_hours LIMIT 1
DROP TABLE forge_series_hours;

DROP TABLE forge_series_minutes;
