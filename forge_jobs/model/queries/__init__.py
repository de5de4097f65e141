"""The filter language: one line of text that selects jobs, as a value and back.

``terms`` has the values, ``reading`` and ``writing`` go from text to them and back, ``matching``
compares the texts of a job.
"""
