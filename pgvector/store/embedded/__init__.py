"""The private Postgres server of a home."""
