-- The large theme that has grown or shrunk most since its words were counted, by a fifth at least; the empty theme stands
-- for all that others than their owners may read. What is known of themes that are not large any more is forgotten.
with sizes as materialized (
  select agent_identity, count(*) as rows from $table where $current group by agent_identity
), large as (
  select agent_identity, rows from sizes where rows > %(rows_min)s
  union all
  select '', sum(rows)::bigint from sizes where agent_identity !~ %(reserved)s having sum(rows) > %(rows_min)s
    and memory_theme_granted('')
), gone as (
  delete from memory_words m
  where m.kind = '$kind' and not exists (select from large l where l.agent_identity = m.agent_identity)
)
select l.agent_identity, l.rows
from large l left join memory_words m on m.agent_identity = l.agent_identity and m.kind = '$kind' and m.word = ''
where m.rows is null or l.rows not between m.rows * 0.8 and m.rows * 1.2
order by m.rows is null desc, l.rows / greatest(m.rows, 1.0) desc, l.agent_identity
limit 1
