-- Notifies every process of a change, when the transaction commits.
SELECT {schema}.hint{v}()
