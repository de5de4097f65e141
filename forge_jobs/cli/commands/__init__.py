"""Commands: a module per noun exports the command or group of that name."""
