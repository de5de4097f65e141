DROP TABLE forge_rate_keys;
