-- Sweeps away a part of what is left of forgotten runs; answers whether there is more.
SELECT {schema}.sweep_leftovers{v}($1)
