"""Built-in handlers: an echo, commands of an allow-list, and programs that stay for many jobs."""
