DROP TABLE forge_sequences;
