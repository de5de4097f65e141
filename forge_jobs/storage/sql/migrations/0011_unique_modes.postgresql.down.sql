-- loses: SELECT 'windows of unique keys' FROM forge_unique_windows WHERE ends_at > extract(epoch FROM clock_timestamp()) * 1000000 UNION SELECT 'replaced content' FROM forge_replacements WHERE ends_at > extract(epoch FROM clock_timestamp()) * 1000000
DROP TABLE forge_replacements;

DROP TABLE forge_unique_windows;
