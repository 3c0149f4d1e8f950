-- An entry that was removed after this add was accepted stays removed, whichever theme of the home removed it: the themes
-- of a home share its files and its clock. An entry that was read from a file is stored once per home, and no entry is
-- stored beside a newer one of the home. When the home has the entry already, the time of its newest row becomes that of
-- this add, so that an older remove that is applied later leaves it. Such a remove may still take the other rows.
with held as (
  update memory_entries
  set updated_at = greatest(updated_at, %(at)s)
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[])) and (agent_identity, id) in (
      select e.agent_identity, e.id from memory_entries e
      where e.home = %(home)s and e.home <> '' and e.target = %(target)s and content_key(e.content) = content_key(%(content)s)
        and (%(themes)s::text[] is null or e.agent_identity = any (%(themes)s::text[]))
        and case when e.agent_identity = %(theme)s or %(from_file)s then true
                 else e.updated_at > %(at)s end
        and (e.expires_at is null or e.expires_at > now())
      order by e.updated_at desc, e.agent_identity = %(theme)s desc
      limit 1)
  returning 1
)
insert into memory_entries
  (agent_identity, home, target, content, embedding, search, created_at, updated_at, metadata, tags, expires_at, replaces)
select %(theme)s, %(home)s, %(target)s, %(content)s, %(embedding)b::halfvec, strip(to_tsvector('english', %(words)s)),
       %(created_at)s, %(at)s, %(metadata)s::jsonb, nullif(%(tags)s::text[], '{}'), %(expires_at)s::timestamptz,
       %(replaces)s::bigint[]
where not exists (select 1 from held) and not exists (
    select 1 from memory_tombstones t
    where t.home = %(home)s and t.target = %(target)s and t.content_key = content_key(%(content)s) and t.at >= %(at)s
      and (t.agent_identity = %(theme)s or %(home)s <> ''))
on conflict do nothing
