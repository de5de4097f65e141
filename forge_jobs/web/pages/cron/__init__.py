"""The pages of schedules: their times in words, the next ones, and how the last ones went."""
