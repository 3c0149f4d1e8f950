-- keep_entry
-- A line of a file that an agent asks to remember stays, whatever becomes of the file.
update memory_entries
set home = '', metadata = metadata || %(metadata)s::jsonb, updated_at = greatest(updated_at, %(at)s)
where agent_identity = %(theme)s and target = %(target)s and content_key(content) = content_key(%(content)s);
-- add_entry
-- An entry removed after this add was accepted stays removed, whichever theme of the home removed it: they share files
-- and clock. One read from a file is stored once per home. One that the home has already is as new as its last add,
-- so that a remove from before, applied late, leaves it.
with held as (
  update memory_entries
  set updated_at = greatest(updated_at, %(at)s)
  where home = %(home)s and home <> '' and target = %(target)s and content_key(content) = content_key(%(content)s)
    and (agent_identity = %(theme)s or %(from_file)s)
  returning 1
)
insert into memory_entries
  (agent_identity, home, target, content, embedding, search, created_at, updated_at, metadata)
select %(theme)s, %(home)s, %(target)s, %(content)s, %(embedding)b::halfvec, strip(to_tsvector('english', %(words)s)),
       %(created_at)s, %(at)s, %(metadata)s::jsonb
where not exists (select from held) and not exists (
    select from memory_tombstones t
    where t.home = %(home)s and t.target = %(target)s and t.content_key = content_key(%(content)s) and t.at >= %(at)s
      and (t.agent_identity = %(theme)s or %(home)s <> ''))
on conflict do nothing;
-- find_entry
-- The one row with exactly this content: of the home in the theme, else of the home elsewhere, else of the theme.
-- One that the home has added again since is another one, and what an agent asked to remember is not of the files.
select agent_identity, id, created_at
from memory_entries
where target = %(target)s and content_key(content) = content_key(%(content)s)
  and (agent_identity = %(theme)s or (home = %(home)s and home <> ''))
  and (updated_at <= %(at)s or home <> %(home)s or home = '')
  and metadata ->> 'origin' is distinct from 'remember'
order by home = %(home)s desc, agent_identity = %(theme)s desc, created_at
limit 1
for update;
-- theme_entries
-- Newest ids first: what was stored or changed last.
select agent_identity as theme, id, home, target, content, created_at, updated_at, metadata
from memory_entries
where agent_identity = %(theme)s and (%(target)s = '' or target = %(target)s)
  and (%(before)s::bigint is null or id < %(before)s)
order by id desc
limit %(limit)s;
-- history
select id, agent_identity as theme, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how,
       session_id, replaced_by
from memory_history
where (%(theme)s = '' or agent_identity = %(theme)s)
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or gone_at >= %(since)s)
  and (%(id)s::bigint is null or id = %(id)s)
order by gone_at desc, id desc
limit %(limit)s;
