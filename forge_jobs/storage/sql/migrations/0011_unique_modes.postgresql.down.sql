DROP TABLE forge_replacements;

DROP TABLE forge_unique_windows;
