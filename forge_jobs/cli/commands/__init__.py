"""One module per noun; each exports the command or group it is named after."""
