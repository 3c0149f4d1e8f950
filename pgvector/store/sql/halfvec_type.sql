-- What the driver has to know of the type of vectors; no row before the extension is there.
select typname as name, oid, typarray as array_oid, oid::regtype::text as regtype, typdelim as delimiter
from pg_type where oid = to_regtype('halfvec')
