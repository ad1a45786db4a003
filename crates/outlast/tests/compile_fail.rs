//! Mistakes that the compiler finds, and its messages.
//!
//! `TRYBUILD=overwrite cargo test -p outlast --test compile_fail` updates the expected messages: review the difference, it is
//! what a user will see.

#[test]
fn mistakes_do_not_compile_and_the_error_says_what_to_do() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
