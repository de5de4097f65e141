"""The metrics of an installation, for Prometheus."""
