-- Entries of an archive. One that the theme has stays as it is, and one that was removed, replaced or has expired after the
-- archive had it stays away. One of the theme that has expired makes room. Returns the ids of all that are there now.
with given as (
  select g.place, g.words, g.vector, g.replaces::bigint[] as replaces, r.*
  from unnest(%(rows)s::text[], %(words)s::text[], %(vectors)b::halfvec[], %(replaces)s::text[]) with ordinality
         as g (row, words, vector, replaces, place),
       jsonb_to_record(g.row::jsonb) as r (home text, target text, content text, created_at timestamptz,
         updated_at timestamptz, metadata jsonb, tags text[], expires_at timestamptz)
), known as (
  select g.place, e.id from given g join memory_entries e on e.agent_identity = %(theme)s and e.target = g.target
    and content_key(e.content) = content_key(g.content)
    and (e.expires_at is null or e.expires_at > now() or g.expires_at <= now())
), fresh as (
  select g.* from given g
  where not exists (select 1 from known k where k.place = g.place)
    and not exists (
      select 1 from memory_history h
      where h.agent_identity = %(theme)s and h.gone_at > g.updated_at and (h.how in ('removed', 'replaced') or h.how = 'expired' and g.expires_at is not null) and h.target = g.target
        and h.content = g.content)
), added as (
  insert into memory_entries
    (agent_identity, home, target, content, embedding, search, created_at, updated_at, metadata, tags, expires_at, replaces)
  select %(theme)s, g.home, g.target, g.content, g.vector, strip(to_tsvector('english', g.words)), g.created_at,
         g.updated_at, g.metadata, nullif(g.tags, '{}'), g.expires_at, nullif(g.replaces, '{}')
  from fresh g
  where not %(dry)s
  order by g.place
  on conflict do nothing
  returning id, target, content
)
select place, id, false as fresh from known
union all
select min(g.place), a.id, true from added a join given g using (target, content) group by a.id
union all
select min(place), 0, true from fresh where %(dry)s group by target, content
