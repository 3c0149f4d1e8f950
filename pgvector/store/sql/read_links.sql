-- All links, if they have changed since the version that is known, else none; one row at least, with the version.
with state as (
  select count(*) || ' ' || coalesce(extract(epoch from max(linked_at)), 0) as version from memory_person_links
)
select s.version, l.agent_identity as account, l.person
from state s
left join (select agent_identity, person from memory_person_links order by linked_at, agent_identity limit %(limit)s) as l
  on s.version <> %(known)s
