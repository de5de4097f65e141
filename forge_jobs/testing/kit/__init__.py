"""The parts of the test kit. The public names are at :mod:`forge_jobs.testing`."""
