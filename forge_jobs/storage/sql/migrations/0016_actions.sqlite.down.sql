-- loses: SELECT 'records of operators'' actions' FROM forge_actions
DROP TABLE forge_action_jobs;

DROP TABLE forge_action_parts;

DROP TABLE forge_actions;
