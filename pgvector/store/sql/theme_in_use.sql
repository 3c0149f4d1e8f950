-- Whether anything is stored in a theme.
select exists (select 1 from memory_entries where agent_identity = %(theme)s)
    or exists (select 1 from conversations where agent_identity = %(theme)s)
    or exists (select 1 from facts where agent_identity = %(theme)s) as held
