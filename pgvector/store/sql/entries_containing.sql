-- Rows that contain a text and are no longer in the file of the home; the caller acts only when there is exactly one.
-- Entries that were remembered or restored outside of the files are left out.
select agent_identity as theme, content
from memory_entries
where target = %(target)s and strpos(content, %(old_text)s) > 0
  and content_key(content) <> all (select content_key(c) from unnest(%(surviving)s::text[]) as c)
  and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and ((home = %(home)s and home <> '') or (home = '' and agent_identity = %(theme)s))
  and coalesce(metadata ->> 'origin', '') not in ('remember', 'undo')
order by agent_identity = %(theme)s desc
limit 10
