select c.relname as name, i.indisvalid as valid, pg_relation_size(c.oid) as bytes
from pg_index i
join pg_class c on c.oid = i.indexrelid
where i.indrelid in ('conversations'::regclass, 'memory_entries'::regclass, 'facts'::regclass)  -- the tables by agent_identity
  and c.relname ~ '^(conversations|memory_entries|facts)_meaning_[0-9a-f]{16}$'
order by c.relname
