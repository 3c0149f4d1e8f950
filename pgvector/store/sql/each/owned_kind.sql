-- Rows of a theme, of one account if it is named, that a transaction will move.
select id from $table
where agent_identity = %(source)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
order by id
limit %(limit)s
for update
