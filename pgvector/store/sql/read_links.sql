-- All links and renames, if they have changed since the version that is known, else none; one row at least, with the
-- version. A theme that was renamed belongs to its new name, or to the person of that.
with state as (
  select (select count(*) || ' ' || coalesce(extract(epoch from max(linked_at)), 0) from memory_person_links)
      || ' ' || (select count(*) || ' ' || coalesce(extract(epoch from max(renamed_at)), 0) from memory_renames) as version
)
select s.version, l.account, l.person
from state s
left join (
  select agent_identity as account, person, linked_at as at from memory_person_links
  union all
  select r.agent_identity, coalesce(p.person, r.theme), r.renamed_at
  from memory_renames r left join memory_person_links p on p.agent_identity = r.theme
  order by at, account
  limit %(limit)s) as l on s.version <> %(known)s
