-- The counts of common words, which are made again from the rows that are left.
delete from memory_words
where agent_identity = '' or %(themes)s::text[] is null or agent_identity = any (%(themes)s::text[])
