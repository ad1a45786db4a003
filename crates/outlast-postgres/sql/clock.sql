-- The world's clock, in microseconds.
SELECT {schema}.clock{v}()
