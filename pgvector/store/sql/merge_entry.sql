-- The entry that stays is known by the ids of those that were merged into it, too. When it stands in a file, or one
-- of them was remembered, it stays when a file loses its text, as they would have.
update memory_entries
set updated_at = greatest(updated_at, %(newest)s), tags = nullif(%(tags)s::text[], '{}'), replaces = %(replaces)s::bigint[],
    home = '', metadata = case when home = '' and not %(remembered)s then metadata else metadata || '{"origin": "remember"}' end
where agent_identity = %(theme)s and id = %(id)s
