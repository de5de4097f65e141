DROP TABLE forge_noted_beats;
