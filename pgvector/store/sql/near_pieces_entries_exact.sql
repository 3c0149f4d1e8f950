-- The best piece of each long text; the pieces of a scope are few beside its rows.
select t.agent_identity, t.id, max(nullif(1 - (p.embedding <=> %(vector)b::halfvec), 'NaN')) as score
from memory_entry_pieces p
join memory_entries t on t.agent_identity = p.agent_identity and t.id = p.row_id
where (t.agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (t.agent_identity = %(own)s or t.agent_identity !~ %(reserved)s)))
  and (%(target)s = '' or t.target = %(target)s)
  and (%(since)s::timestamptz is null or t.updated_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or t.updated_at < %(until)s::timestamptz)
group by t.agent_identity, t.id
order by score desc nulls last, t.agent_identity, t.id
limit %(limit)s
