"""The operator's policy: what is kept of what is said, by whom and where. Pure."""
