"""The folder that `hermes-pgvector install` links into a home's `hooks` folder."""
