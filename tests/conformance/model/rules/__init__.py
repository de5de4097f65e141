"""Rules of a program, theme by theme."""
