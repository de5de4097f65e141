"""The HTTP API and the dashboard."""
