-- An entry has the ids of those saves by which its text was made.
update memory_entries
set metadata = metadata || jsonb_build_object('tools', %(tools)s::jsonb)
where agent_identity = %(theme)s and metadata -> 'saves' ?| %(saves)s::text[]
