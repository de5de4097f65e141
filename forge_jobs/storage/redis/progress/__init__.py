"""Progress and log lines of jobs, on Redis."""
