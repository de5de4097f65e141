"""Judgement: what becomes of a queue, how many pods help, and whether the objective holds."""
