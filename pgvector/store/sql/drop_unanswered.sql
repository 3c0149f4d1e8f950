-- Of the questions of a session without an answer, the newest with the same words as each that is given are deleted: as
-- many as are given. The answer of a question is a microsecond newer.
delete from conversations as c
using (
  select q.id, q.content, row_number() over (partition by q.content order by q.ts desc, q.id desc) as place
  from conversations q
  where q.agent_identity = %(theme)s and q.session_id = %(session)s and q.role = 'user' and q.ts <= %(at)s
    and q.content = any (%(questions)s::text[])
    and not exists (
      select 1 from conversations a
      where a.agent_identity = %(theme)s and a.session_id = q.session_id and a.role = 'assistant'
        and a.ts = q.ts + interval '1 microsecond')
) as s
where c.agent_identity = %(theme)s and c.session_id = %(session)s and c.id = s.id
  and s.place <= cardinality(array_positions(%(questions)s::text[], s.content))
