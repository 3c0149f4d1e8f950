-- An index whose making failed is there, and not valid.
select count(*) as rows,
       coalesce((select indisvalid from pg_index where indexrelid = to_regclass(%(own_index)s)), false) as own_index,
       exists (select from memory_entry_pieces
               where agent_identity = any (%(themes)s::text[]) or %(themes)s::text[] is null) as pieces
from (
  select from memory_entries
  where (agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or updated_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or updated_at < %(until)s::timestamptz)
  limit %(limit)s) as counted
