select p.content from conversations p
 where p.agent_identity = t.agent_identity and p.session_id = t.session_id and (p.ts, p.id) < (t.ts, t.id)
 order by p.ts desc, p.id desc limit 1
