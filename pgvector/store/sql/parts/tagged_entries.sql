(%(any_tags)s::text[] is null or (tags is not null and tags || array['@' || agent_identity] && %(any_tags)s::text[]))
  and (%(all_tags)s::text[] is null or (tags is not null and tags || array['@' || agent_identity] @> %(all_tags)s::text[]))
  and (%(tag_themes)s::text[] is null or tags || array['@' || agent_identity] && %(tag_themes)s::text[])
