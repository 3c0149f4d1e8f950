-- Where events of these themes are stored, of those that have another name or belong to a person; `account` is the linked one.
select t.name as theme, coalesce(l.person, r.theme) as place,
       case when l.person is null then '' else coalesce(r.theme, t.name) end as account
from unnest(%(themes)s::text[]) as t (name)
left join memory_renames r on r.agent_identity = t.name
left join memory_person_links l on l.agent_identity = coalesce(r.theme, t.name)
where r.theme is not null or l.person is not null
