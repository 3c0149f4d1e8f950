select exists (select from memory_entries where embedding is null)
       or exists (select from conversations where embedding is null)
       or exists (select from facts where embedding is null and status in ('active', 'cold')) as vectors,
       exists (select from memory_entries where search is null)
       or exists (select from conversations where search is null)
       or exists (select from facts where search is null and status in ('active', 'cold')) as words
