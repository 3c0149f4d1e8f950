-- Notes of pruned turns, which keep later replays from storing them, of a theme also those of its other names.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'session_id', r.session_id, 'content_key', r.content_key,
         'times', r.times, 'at', r.at)::text as row
from (
  select agent_identity as theme, 0 as id, session_id, content_key, times, at
  from memory_pruned_turns
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[])
    or agent_identity in (
    select n.agent_identity from memory_renames n where n.theme = any (%(themes)s::text[]) union
    select l.agent_identity from memory_person_links l where l.person = any (%(themes)s::text[])))
) as r
order by theme, session_id, content_key
