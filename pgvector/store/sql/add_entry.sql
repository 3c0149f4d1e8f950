-- An entry removed after this add was accepted stays removed; one read from a file is stored once per home.
insert into memory_entries
  (agent_identity, home, target, content, embedding, search, created_at, updated_at, metadata)
select %(theme)s, %(home)s, %(target)s, %(content)s, %(embedding)b::halfvec, to_tsvector('english', %(words)s),
       %(created_at)s, %(at)s, %(metadata)s::jsonb
where not exists (
    select from memory_tombstones t
    where t.agent_identity = %(theme)s and t.home = %(home)s and t.target = %(target)s
      and t.content_key = content_key(%(content)s) and t.at >= %(at)s)
  and not (%(from_file)s and exists (
    select from memory_entries e
    where e.home = %(home)s and e.target = %(target)s and content_key(e.content) = content_key(%(content)s)))
on conflict do nothing
