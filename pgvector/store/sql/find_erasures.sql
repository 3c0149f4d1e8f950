-- What is known of the texts, sessions and themes of a batch of events, and of entries that stand in files of any theme.
select agent_identity as theme, key, kind, at
from memory_erasures
where (agent_identity = any (%(themes)s::text[]) and key = any (%(keys)s::bytea[]))
   or (cardinality(%(entries)s::bytea[]) > 0 and kind = 'entries' and key = any (%(entries)s::bytea[]))
