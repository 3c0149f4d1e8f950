-- Rows that hold a text and are no longer in the file: the caller acts only when there is exactly one.
select agent_identity, home, content
from memory_entries
where target = %(target)s and strpos(content, %(old_text)s) > 0
  and content_key(content) <> all (select content_key(c) from unnest(%(surviving)s::text[]) as c)
  and (agent_identity = %(theme)s or (home = %(home)s and home <> ''))
order by agent_identity = %(theme)s desc, home = %(home)s desc
limit 10
