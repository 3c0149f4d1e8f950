(expires_at is null or expires_at > now())
