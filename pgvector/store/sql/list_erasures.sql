select agent_identity as theme, count(*) filter (where kind = 'theme') > 0 as whole,
       count(*) filter (where kind = 'session') as sessions,
       count(*) filter (where kind in ('entries', 'turns', 'facts')) as texts,
       max(at) as at, sum(dropped)::bigint as dropped, max(dropped_at) as dropped_at
from memory_erasures
group by agent_identity
order by max(at) desc, agent_identity
limit %(limit)s
