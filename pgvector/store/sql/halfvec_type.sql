-- What the driver has to know of the type of vectors, and whether the tables are distributed; no row before the extension is there.
select typname as name, oid, typarray as array_oid, oid::regtype::text as regtype, typdelim as delimiter,
       -- Citus puts this trigger on each distributed table.
       exists (select 1 from pg_trigger
               where tgrelid = to_regclass('conversations') and tgfoid = to_regproc('citus_truncate_trigger')) as distributed
from pg_type where oid = to_regtype('halfvec')
