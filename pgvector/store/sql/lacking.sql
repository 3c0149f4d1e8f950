select exists (select from memory_entries where embedding is null)
       or exists (select from conversations where embedding is null) as vectors,
       exists (select from memory_entries where search is null)
       or exists (select from conversations where search is null) as words
