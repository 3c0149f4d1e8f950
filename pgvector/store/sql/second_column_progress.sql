select entries.rows + turns.rows + facts.rows as rows, entries.lacking + turns.lacking + facts.lacking as lacking
from (select (select count(*) from memory_entries) as rows,
             (select count(*) from memory_entries where embedding_next is null) as lacking) as entries,
     (select (select count(*) from conversations) as rows,
             (select count(*) from conversations where embedding_next is null) as lacking) as turns,
     (select (select count(*) from facts where status in ('active', 'cold')) as rows,
             (select count(*) from facts where embedding_next is null and status in ('active', 'cold')) as lacking) as facts
