"""``forge-jobs web``: the dashboard, and the file of users."""
