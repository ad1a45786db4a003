-- The world's clock.
SELECT {schema}.clock{v}()
