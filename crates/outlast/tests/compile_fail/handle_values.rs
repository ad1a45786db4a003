//! A constant with an invalid value does not compile.

use outlast::prelude::*;

const SLOW: Step<u64, String> = Step::new("slow").timeout("30 parsecs");
const NEVER: Step<u64, String> = Step::new("never").attempts(0);

fn main() {
    let _ = (SLOW, NEVER);
}
