"""Commands about the settings of a home: where each comes from, changes, and copies for other profiles."""
