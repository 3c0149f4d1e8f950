"""The durable queue on local disk between the hooks and Postgres."""
