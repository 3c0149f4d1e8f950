-- Old names of themes, of a theme also those that lead to it.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, 0 as id, theme as new, renamed_at
  from memory_renames
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]) or theme = any (%(themes)s::text[]))
) as r
order by theme
