"""Pages of one job."""
