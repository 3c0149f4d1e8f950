-- Entries are known by the call of the host's tool, which the hook told, or by the text that a tool of this memory stored. A
-- corrected entry has the session in which it was made first.
update memory_entries
set metadata = metadata || jsonb_build_object('tools', %(tools)s::jsonb)
where agent_identity = %(theme)s and (metadata ->> 'session_id' = %(session_id)s or replaces is not null)
  and case when metadata ->> 'origin' = 'remember' then encode(content_key(content), 'hex')
           else metadata ->> 'tool_call_id' end = any (%(keys)s::text[])
