DROP TABLE forge_members;
