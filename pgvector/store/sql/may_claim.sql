-- Whether this role makes settings: one that stores turns does. A reader does not.
select has_table_privilege('conversations', 'insert') as may
