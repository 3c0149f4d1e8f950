-- Scopes that have no facts any more.
delete from fact_scopes
where (agent_identity, label) in (
  select agent_identity, label from fact_scopes t
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and %(ids)s::bigint[] is null
  and (%(session)s = '' or session_id = %(session)s) and (%(text)s = '' or label ilike %(text)s)
    and not exists (select 1 from facts f where f.agent_identity = t.agent_identity and f.scope = t.label)
  limit %(limit)s)
