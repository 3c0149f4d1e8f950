-- How often a session and the sessions that it continues have each of these answers to each question; the question is
-- empty when an answer has none. A question is a microsecond older than its answer. Turns that were pruned count, too,
-- with an empty question, because only a hash of the answer is left of them.
select question, answer, sum(times)::bigint as times
from (
  select coalesce(q.content, '') as question, a.content as answer, 1 as times
  from conversations as a
  left join lateral (
    select content from conversations
    where agent_identity = %(theme)s and session_id = a.session_id and role = 'user'
      and ts = a.ts - interval '1 microsecond'
    order by id limit 1) as q on true
  where a.agent_identity = %(theme)s and a.session_id = any (%(sessions)s::text[]) and a.role = 'assistant'
    and a.content = any (%(answers)s::text[])
  union all
  select '', said.answer, p.times
  from (select distinct unnest(%(answers)s::text[])) as said (answer)
  join memory_pruned_turns p on p.agent_identity = %(theme)s and p.session_id = any (%(sessions)s::text[])
    and p.content_key = content_key(said.answer)
) as t
group by question, answer
