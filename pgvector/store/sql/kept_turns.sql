-- Those of these turns that are there; they stay until the end of the transaction.
select id from conversations
where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])
order by id
for share
