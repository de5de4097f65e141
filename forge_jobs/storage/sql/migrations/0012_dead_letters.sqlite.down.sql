-- loses: SELECT 'letters of dead jobs' FROM forge_letters UNION SELECT 'the setting dead_letter of queues' FROM forge_queues WHERE dead_letter <> ''
DROP TABLE forge_letters;

ALTER TABLE forge_queues DROP COLUMN dead_letter;
