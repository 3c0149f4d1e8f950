select (select count(*) from memory_entries) as entries,
       (select count(*) from memory_entries where embedding is null) as entries_without_vector,
       (select count(*) from conversations) as turns,
       (select count(*) from conversations where embedding is null) as turns_without_vector,
       (select count(*) from facts where status in ('active', 'cold')) as facts,
       (select count(*) from facts where embedding is null and status in ('active', 'cold')) as facts_without_vector,
       (select count(*) from memory_entries where search is null)
       + (select count(*) from conversations where search is null)
       + (select count(*) from facts where search is null and status in ('active', 'cold')) as without_words,
       (select count(distinct agent_identity) from (
          select agent_identity from memory_entries union select agent_identity from conversations
          union select agent_identity from facts where status in ('active', 'cold')) as t) as themes
