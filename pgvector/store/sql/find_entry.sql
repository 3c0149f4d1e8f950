-- The one row with exactly this content: of the home in the theme, else of the home in another theme, else of the theme.
-- A row that the home has added again since then is left out, and so is one that an agent asked to remember.
select agent_identity as theme, id
from memory_entries
where (agent_identity, id) in (
    select w.agent_identity, w.id from memory_entries_with_texts(array[%(content)s], %(target)s, %(theme)s, %(home)s) w)
  and (updated_at <= %(at)s or home <> %(home)s or home = '')
  and metadata ->> 'origin' is distinct from 'remember'
order by home = %(home)s desc, agent_identity = %(theme)s desc, created_at
limit 1
