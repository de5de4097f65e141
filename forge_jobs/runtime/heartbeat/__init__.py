"""The heartbeat: the thread, the effects of a beat, and the watch over the event loop."""
