-- Records the outcome of a transactional step; the arguments follow as literals.
SELECT number, moment FROM {schema}.record_outcome{v}
