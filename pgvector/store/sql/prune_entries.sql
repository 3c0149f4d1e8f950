-- Deletes the oldest entries that match and stand in no file of a home; the history keeps them.
with chosen as materialized (
  select id, created_at from memory_entries
  where agent_identity = %(theme)s and home = ''
    and (%(before)s::timestamptz is null or created_at < %(before)s)
    and (%(chars)s::int = 0 or length(content) > %(chars)s)
    and (created_at, id) > (%(after)s::timestamptz, %(after_id)s::bigint)
  order by created_at, id
  limit %(limit)s
  for update skip locked
), gone as (
  delete from memory_entries e using chosen
  where e.agent_identity = %(theme)s and e.id = chosen.id
  returning 1
)
select (select count(*) from gone) as rows,
       (select created_at::text from chosen order by created_at desc, id desc limit 1) as after,
       (select id from chosen order by created_at desc, id desc limit 1) as after_id
