"""The order of jobs of one sequence."""
