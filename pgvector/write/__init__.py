"""From the outbox into rows: the writer thread, batches, validation, backfill of vectors and words."""
