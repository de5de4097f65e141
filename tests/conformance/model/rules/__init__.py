"""What a program may do, theme by theme."""
