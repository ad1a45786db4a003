//! What `#[step]` leaves.

use std::time::Duration;

use outlast_macros::step;

use crate::sdk::{Attempt, Policy, Retry, StepCode, StepContext, StepDefinition, StepError, now};

/// The state of some workers.
#[derive(Debug)]
pub struct Bank(u64);

/// Takes the money.
#[step(attempts = 3, timeout = "1h30m", initial = "5ms", multiplier = 1.5, pause_max = "2m", name = "charge-card", was = ["pay", "charge"])]
pub async fn charge(cx: StepContext<Bank>, mut cents: u64) -> Result<u64, StepError> {
    if cents == 0 {
        return Err(StepError("empty order".into()));
    }
    cents += "1".parse::<u64>()?;
    Ok(cents + cx.0.0)
}

#[step]
async fn greet(_cx: StepContext, Name(name): Name, _times: u8) -> String {
    format!("hello {name}")
}

#[step]
async fn r#loop() {}

#[step]
async fn parse(text: String) -> Result<i32, std::num::ParseIntError> {
    let number = text.parse()?;
    Ok(number)
}

#[step(blocking, limit = 2)]
fn parse_slowly(mut text: String) -> Result<i32, std::num::ParseIntError> {
    text.push('0');
    text.parse()
}

#[step(reconcile = look_up, unique = "name.0, times")]
async fn book(cx: StepContext<Bank>, name: Name, times: u8) -> Result<u64, StepError> {
    Ok(cx.0.0 + u64::from(times) + name.0.len() as u64)
}

#[allow(clippy::unused_async)]
async fn look_up(cx: StepContext<Bank>, (name, _times): (Name, u8)) -> Result<Option<u64>, StepError> {
    Ok((name.0 == "Ada").then_some(cx.0.0))
}

#[step(unique = "name")]
async fn call_up(name: String) -> String {
    name
}

#[derive(Debug)]
struct Name(&'static str);

/// Takes what the SDK takes: the function itself.
fn definition<S, D: StepCode<S>, F>(_: F) -> (&'static str, &'static [&'static str], Policy)
where
    F: Fn(StepContext<S>, D::Input) -> Attempt<D>,
{
    (D::NAME, D::WAS, D::policy())
}

#[test]
fn a_step_carries_its_definition() {
    let retry = Retry {
        attempts: 3,
        initial: Duration::from_millis(5),
        multiplier: 1.5,
        max: Duration::from_mins(2),
    };
    let policy = Policy { retry, timeout: Some(Duration::from_mins(90)), ..Policy::DEFAULT };
    assert_eq!(definition(charge), ("charge-card", &["pay", "charge"][..], policy));
    assert_eq!(<__step_loop as StepDefinition>::NAME, "loop");
    assert_eq!(__step_loop::policy(), Policy::DEFAULT);
}

#[test]
fn a_step_is_a_plain_function() {
    assert_eq!(now(charge(StepContext(Bank(100)), 10)).unwrap(), 111);
    assert_eq!(now(charge(StepContext(Bank(100)), 0)).unwrap_err().0, "empty order");
    assert_eq!(now(greet(StepContext(()), Name("Ada"), 2)).unwrap(), "hello Ada");
    assert_eq!(now(parse("x".into())).unwrap_err().0, "invalid digit found in string");
    now(r#loop()).unwrap();
    assert_eq!(now(parse_slowly("7".into())).unwrap(), 70);
    assert_eq!(
        (__step_parse_slowly::policy().limit, __step_parse_slowly::policy().is_blocking),
        (Some(2), true)
    );
}

#[test]
fn a_step_without_a_state_runs_with_every_state() {
    assert_eq!(now(__step_greet::attempt(StepContext(Bank(1)), (Name("Ada"), 2))).unwrap(), "hello Ada");
    assert_eq!(now(__step_parse::attempt(StepContext("state"), "7".into())).unwrap(), 7);
    now(__step_loop::attempt(StepContext(1), ())).unwrap();
    assert_eq!(now(__step_charge::attempt(StepContext(Bank(1)), 1)).unwrap(), 3);
}

#[test]
fn a_step_looks_for_an_earlier_effect_where_it_says_how() {
    const {
        assert!(
            <__step_book as StepCode<Bank>>::RECONCILES && !<__step_charge as StepCode<Bank>>::RECONCILES
        );
    };
    let found = |name| now(__step_book::reconcile(StepContext(Bank(5)), (Name(name), 2))).unwrap();
    assert_eq!((found("Ada"), found("Bob")), (Some(5), None));
    assert_eq!(now(book(StepContext(Bank(5)), Name("Bob"), 2)).unwrap(), 10);
}

#[test]
fn a_step_makes_its_key_of_what_it_names() {
    assert_eq!(__step_book::unique(&(Name("Ada"), 2)).unwrap().unwrap(), "book (\"Ada\", 2)");
    assert_eq!(__step_call_up::unique(&"Ada".to_owned()).unwrap().unwrap(), "call_up (\"Ada\",)");
    assert_eq!(now(call_up("Ada".to_owned())).unwrap(), "Ada");
    assert_eq!(__step_charge::unique(&1).unwrap(), None);
}
