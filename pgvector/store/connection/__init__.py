"""Connections to Postgres: the pool, transactions with their time limits, and the errors of the driver."""
