"""Erasure for good: what is erased, the marks that keep it from coming back, and what the server still holds of it."""
