-- How many rows an export has, by their kind.
select 'entry' as kind, count(*) as rows from memory_entries
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'past' as kind, count(*) as rows from memory_history
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'fact' as kind, count(*) as rows from facts
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'scope' as kind, count(*) as rows from fact_scopes
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'turn' as kind, count(*) as rows from conversations
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'delegation' as kind, count(*) as rows from memory_agent_edges
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'withdrawal' as kind, count(*) as rows from memory_withdrawals
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'tombstone' as kind, count(*) as rows from memory_tombstones
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'link' as kind, count(*) as rows from memory_person_links
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]) or person = any (%(themes)s::text[]))
union all
select 'event' as kind, count(*) as rows from memory_events
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
union all
select 'rename' as kind, count(*) as rows from memory_renames
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]) or theme = any (%(themes)s::text[]))
union all
select 'pruned' as kind, count(*) as rows from memory_pruned_turns
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[])
   or agent_identity in (
     select n.agent_identity from memory_renames n where n.theme = any (%(themes)s::text[]) union
     select l.agent_identity from memory_person_links l where l.person = any (%(themes)s::text[])))
union all
select 'erasure' as kind, count(*) as rows from memory_erasures
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[])
   or agent_identity in (
     select n.agent_identity from memory_renames n where n.theme = any (%(themes)s::text[]) union
     select l.agent_identity from memory_person_links l where l.person = any (%(themes)s::text[])))
