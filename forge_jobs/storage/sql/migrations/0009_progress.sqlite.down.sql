-- loses: SELECT 'progress of jobs' FROM forge_progress UNION SELECT 'log lines of jobs' FROM forge_log_lines
DROP TABLE forge_log_lines;

DROP TABLE forge_progress;
