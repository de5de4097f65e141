"""Progress and log lines of jobs, on SQL."""
