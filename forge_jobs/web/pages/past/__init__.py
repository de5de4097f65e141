"""Pages as they were at an earlier minute."""
