-- A fact and those that it has superseded, directly or not.
with recursive versions as (
  select agent_identity, id from facts
  where id = %(id)s::bigint and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  union
  select f.agent_identity, f.id from facts f join versions v on (f.agent_identity, f.superseded_by) = (v.agent_identity, v.id)
  where %(themes)s::text[] is null or f.agent_identity = any (%(themes)s::text[])
)
select coalesce(array_agg(distinct id), '{}') as ids from versions
