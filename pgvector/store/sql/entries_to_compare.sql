-- Entries in the order of their ids. One that expires is not compared: it goes by itself.
select id, target || ' ' || coalesce(metadata ->> 'linked_account', '') as scope, content, home <> '' as fixed,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as at, embedding is not null as embedded
from memory_entries
where agent_identity = %(theme)s and id > %(after)s and expires_at is null
order by id
limit %(limit)s
