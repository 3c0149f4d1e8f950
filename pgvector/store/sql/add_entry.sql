-- An entry that was removed after this add was accepted stays removed, whichever theme of the home removed it: the themes
-- of a home share its files and its clock. An entry that was read from a file is stored once per home. When the home has
-- the entry already, its time becomes that of this add, so that an older remove that is applied later leaves it.
with held as (
  update memory_entries
  set updated_at = greatest(updated_at, %(at)s)
  where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
    and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
    and (agent_identity = %(theme)s or %(from_file)s) and (expires_at is null or expires_at > now())
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
