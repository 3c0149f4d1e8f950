-- What Postgres makes of a question's words: no stop-words, no endings.
select tsvector_to_array(to_tsvector('english', %(words)s)) as lexemes
