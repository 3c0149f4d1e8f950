-- The one row with exactly this content: of the home in the theme, else of the home in another theme, else of the theme.
-- A row that the home has added again since then is left out, and so is one that an agent asked to remember.
select agent_identity as theme, id, greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
       tags,
       case when isfinite(expires_at) and expires_at > now() then least('9999-12-29', expires_at) end as expires_at
from memory_entries
where (agent_identity, id) in (
    select w.agent_identity, w.id from memory_entries_with_texts(array[%(content)s], %(target)s, %(theme)s, %(home)s) w)
  and (updated_at <= %(at)s or home <> %(home)s or home = '')
  and metadata ->> 'origin' is distinct from 'remember'
order by home = %(home)s desc, agent_identity = %(theme)s desc, created_at
limit 1
