-- The scope that a session wrote to last, up to the time of an event. A fact knows the session that wrote it last, an open scope several.
select label
from (
  (select scope as label, to_jsonb(extract(epoch from written_at)) as at
   from facts
   where agent_identity = %(theme)s and session_id = %(session_id)s and written_at <= %(at)s
   order by written_at desc, id desc
   limit 1)
  union all
  select label, metadata -> 'sessions' -> %(session_id)s
  from fact_scopes
  where agent_identity = %(theme)s and closed_at is null
    and metadata -> 'sessions' -> %(session_id)s <= to_jsonb(extract(epoch from %(at)s::timestamptz))
) as written
order by at desc
limit 1
