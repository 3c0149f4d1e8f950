-- Whether anything is stored in a theme, or was.
select exists (select 1 from memory_entries where agent_identity = %(theme)s)
    or exists (select 1 from conversations where agent_identity = %(theme)s)
    or exists (select 1 from facts where agent_identity = %(theme)s)
    or exists (select 1 from memory_history where agent_identity = %(theme)s) as held
