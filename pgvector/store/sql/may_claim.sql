-- Whether this role makes settings. A reader does not.
select has_function_privilege('claim_memory_setting(text, text)', 'execute') as may
