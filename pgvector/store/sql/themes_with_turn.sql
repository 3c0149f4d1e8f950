select agent_identity as theme from conversations
where id = %(id)s
order by 1
limit 10
