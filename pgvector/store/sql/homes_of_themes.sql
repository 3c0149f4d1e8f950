-- The homes that wrote into these themes, as far as the rows tell.
select distinct home from memory_entries
where home <> '' and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
order by home
limit %(limit)s
