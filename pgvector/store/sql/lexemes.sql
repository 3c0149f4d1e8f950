-- What Postgres makes of each word of a question: nothing of a stop-word, no endings.
select word, tsvector_to_array(to_tsvector('english', word)) as lexemes
from unnest(%(words)s::text[]) as word
