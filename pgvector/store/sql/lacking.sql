select exists (select 1 from memory_entries where embedding is null)
       or exists (select 1 from conversations where embedding is null)
       or exists (select 1 from facts where embedding is null and status in ('active', 'cold')) as vectors,
       exists (select 1 from memory_entries where search is null)
       or exists (select 1 from conversations where search is null)
       or exists (select 1 from facts where search is null and status in ('active', 'cold')) as words
