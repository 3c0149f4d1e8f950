-- The ids of calls may repeat before `since`. The transcript of one host has the first part of the id that its hook had.
update memory_entries
set metadata = metadata || jsonb_build_object('tools', %(tools)s::jsonb)
where agent_identity = %(theme)s and home in (%(home)s, '') and updated_at >= %(since)s::timestamptz
  and split_part(metadata ->> 'tool_call_id', '|', 1) = any (%(calls)s::text[])
