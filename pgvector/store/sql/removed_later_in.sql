-- A theme in which a home has removed an entry with this text after this time.
select agent_identity as theme from memory_tombstones
where home = %(home)s and home <> '' and target = %(target)s and content_key = content_key(%(content)s) and at > %(at)s
limit 1
