select id, home,
       coalesce(nullif(metadata ->> 'client', ''), metadata ->> 'origin',
                case metadata - 'released' when '{}' then 'database' else 'memory tool' end) as source,
       target as part, content, greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at
from memory_entries
where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])
