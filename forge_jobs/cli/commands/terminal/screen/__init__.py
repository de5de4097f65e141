"""The screen of ``forge-jobs top``: keys, what they mean, and what is drawn."""
