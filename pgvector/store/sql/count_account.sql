-- What a theme has, of one account if it is named; `at` is the time of its newest row.
select %(theme)s as theme, e.entries, c.turns, f.facts,
       case when e.at is not null or c.at is not null or f.at is not null
       then greatest('0001-01-03', least('9999-12-29', greatest(e.at, c.at, f.at))) end as at
from (
  select count(*) as entries, max(updated_at) as at from memory_entries
  where agent_identity = %(theme)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
) as e cross join (
  select count(*) as turns, max(ts) as at from conversations
  where agent_identity = %(theme)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
) as c cross join (
  select count(*) as facts, max(written_at) as at from facts
  where agent_identity = %(theme)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
) as f
