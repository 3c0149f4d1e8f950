-- Facts have no tags.
%(any_tags)s::text[] is null and %(all_tags)s::text[] is null and %(tag_themes)s::text[] is null and false
