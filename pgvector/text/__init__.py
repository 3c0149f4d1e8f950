"""Pure functions on text: cleaning, tokens, chunks, sanitizing, times, checks of settings, and what is kept."""
