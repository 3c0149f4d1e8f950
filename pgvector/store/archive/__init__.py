"""Archives: rows on their way out of one database and into another, as lines of JSON."""
