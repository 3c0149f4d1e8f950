-- A scope that was written to later stays open, but what was written to it before becomes cold. `closed` is the time of the last
-- closing, in seconds.
with noted as (
  update fact_scopes set
    closed_at = case when written_at <= %(at)s then %(at)s end,
    metadata = jsonb_set(metadata, '{closed}',
      greatest(metadata -> 'closed', to_jsonb(extract(epoch from %(at)s::timestamptz))))
  where agent_identity = %(theme)s and label = any (%(labels)s::text[]) and closed_at is null
)
update facts set status = 'cold', changed_at = %(at)s
where agent_identity = %(theme)s and status = 'active' and scope = any (%(labels)s::text[]) and written_at <= %(at)s
