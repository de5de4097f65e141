"""The heartbeat: its thread, what a beat brings, and the watch over the event loop."""
