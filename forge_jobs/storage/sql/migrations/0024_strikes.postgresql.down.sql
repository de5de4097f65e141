DROP TABLE forge_strikes;
