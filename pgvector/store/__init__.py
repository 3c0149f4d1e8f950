"""Postgres: the only folder with SQL and the driver."""
