"""reembed: change the embedding model while agents go on."""
