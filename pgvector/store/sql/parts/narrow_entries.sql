$live
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or updated_at >= %(since)s::timestamptz)
  and (%(until)s::timestamptz is null or updated_at < %(until)s::timestamptz)
