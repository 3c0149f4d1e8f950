-- The same without a function, which a node could not run.
update memory_entries
set home = '', updated_at = greatest(updated_at, %(at)s),
    metadata = case when metadata ? 'tools' then (metadata - 'tools') || (%(metadata)s::jsonb - 'linked_account')
                    else metadata || (%(metadata)s::jsonb - array['linked_account', 'saves']) end,
    tags = nullif(coalesce(%(tags)s::text[], tags), '{}'),
    expires_at = case when %(expiry_given)s then %(expires_at)s::timestamptz else expires_at end
where agent_identity = %(theme)s
  and target = %(target)s and content_key(content) = content_key(%(content)s)
  and (expires_at is null or expires_at > now())
