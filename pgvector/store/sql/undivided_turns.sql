-- Messages of users that have their vector and none for their sentences, in the order of the key, from behind a row on.
select agent_identity as theme, id, content
from conversations as t
where (agent_identity, id) > (%(theme)s, %(id)s)
  and role = 'user'
  and embedding is not null
  and not exists (select 1 from conversation_pieces p where p.agent_identity = t.agent_identity and p.row_id = t.id)
order by agent_identity, id
limit %(limit)s
