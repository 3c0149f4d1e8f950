-- An entry of a file that an agent asks to remember stays when the file loses it. One of a person stays with the account
-- that it came from. One of third parties is remembered by this save now; any other one stays known by its own save, so that
-- a page cannot have it marked.
update memory_entries
set home = '', updated_at = greatest(updated_at, %(at)s),
    metadata = case when metadata ? 'tools' then (metadata - 'tools') || (%(metadata)s::jsonb - 'linked_account')
                    else metadata || (%(metadata)s::jsonb - array['linked_account', 'saves']) end,
    tags = nullif(coalesce(%(tags)s::text[], tags), '{}'),
    expires_at = case when %(expiry_given)s then %(expires_at)s::timestamptz else expires_at end
where (agent_identity, id) in (
    select w.agent_identity, w.id from memory_entries_with_texts(array[%(content)s], %(target)s, %(theme)s, '') w)
  and (expires_at is null or expires_at > now())
