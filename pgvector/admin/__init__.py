"""The operators' commands: one module each, called by `commands`."""
