-- loses: SELECT 'checkpoints of jobs' FROM forge_steps
DROP TABLE forge_steps;
