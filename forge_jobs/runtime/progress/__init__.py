"""Progress and log lines of runs, on the way to the store."""
