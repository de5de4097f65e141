"""``forge-jobs bench``: a user's own store, measured."""
