"""Structured facts: their notation, the signals that close a scope, and the block for a prompt."""
