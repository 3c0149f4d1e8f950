-- What a sample of its rows tells of one theme's words, or for the empty theme of all that are not hidden: kept are those
-- that at least one row in 200 holds, and under the empty word the number of all rows. The sample goes by a hash of the id,
-- because the two sides of a conversation alternate.
with sampled as materialized (
  select agent_identity, id from $table
  where $current and (agent_identity = %(theme)s or (%(theme)s = '' and agent_identity !~ %(reserved)s))
    and (hashint8extended(id, 0) & 1073741823) %% greatest(1, %(rows)s::bigint / %(sample)s::bigint) = 0
  limit 2 * %(sample)s::bigint
), texts as materialized (
  select t.search from sampled s join $table t on t.agent_identity = s.agent_identity and t.id = s.id
  where t.search is not null
), found as materialized (
  select w.lexeme as word, count(*) * %(rows)s::bigint / (select count(*) from texts) as rows
  from texts cross join lateral unnest(texts.search) as w
  group by w.lexeme
  having count(*) * 200 >= (select count(*) from texts)
  union all
  select '', %(rows)s::bigint
), gone as (
  delete from memory_words m
  where m.agent_identity = %(theme)s and m.kind = '$kind' and not exists (select 1 from found where found.word = m.word)
)
insert into memory_words (agent_identity, kind, word, rows)
select %(theme)s, '$kind', word, rows from found
on conflict (agent_identity, kind, word) do update set rows = excluded.rows
