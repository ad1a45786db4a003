//! What `select!` does, and in which order.

use std::cell::RefCell;
use std::future::ready;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use outlast_macros::select;

use crate::sdk::now;

/// What happened, in order.
#[derive(Clone, Default)]
struct Diary(Rc<RefCell<Vec<String>>>);

impl Diary {
    fn note(&self, text: impl Into<String>) {
        self.0.borrow_mut().push(text.into());
    }

    /// A future that is ready at its poll number `ready_at`.
    fn operation(&self, name: &'static str, ready_at: usize) -> Operation {
        self.note(format!("make {name}"));
        Operation { name, polls: 0, ready_at, diary: self.clone() }
    }

    fn text(&self) -> String {
        self.0.borrow().join(", ")
    }
}

struct Operation {
    name: &'static str,
    polls: usize,
    ready_at: usize,
    diary: Diary,
}

impl Future for Operation {
    type Output = &'static str;
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls += 1;
        self.diary.note(format!("poll {}", self.name));
        if self.polls == self.ready_at { Poll::Ready(self.name) } else { Poll::Pending }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.diary.note(format!("drop {}", self.name));
    }
}

#[test]
fn all_are_made_then_polled_in_order_then_dropped_before_the_body_runs() {
    let diary = Diary::default();
    now(async {
        select! {
            name = diary.operation("a", 3) => diary.note(format!("body {name}")),
            name = diary.operation("b", 2) => { diary.note(format!("body {name}")); }
            _ = diary.operation("c", 2) => unreachable!(),
        }
    });
    let (start, rest) = diary.text().split_once(", drop").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(start, "make a, make b, make c, poll a, poll b, poll c, poll a, poll b");
    assert_eq!(rest.matches("drop").count(), 2);
    assert!(rest.ends_with(", body b"), "{rest}");
}

#[test]
fn of_two_that_are_ready_the_first_written_wins() {
    let first = now(async {
        select! { a = ready(1) => a, b = ready(2) => b }
    });
    assert_eq!(first, 1);
}

#[test]
fn control_flow_in_bodies_and_futures_is_that_of_the_function_around() {
    async fn question(value: Result<u8, String>) -> Result<u8, String> {
        let number = select! { value = ready(value) => value? };
        Ok(number)
    }
    async fn early(value: Option<u8>) -> Option<u8> {
        let number = select! {
            number = ready(value?) => match number {
                2 => return Some(9),
                other => other,
            },
        };
        Some(number)
    }
    async fn looped() -> u8 {
        let mut count = 0;
        loop {
            select! {
                (a, _) = ready((1, "x")) => {
                    count += a;
                    if count == 3 { break count }
                }
            }
        }
    }
    assert_eq!(now(question(Ok(1))), Ok(1));
    assert_eq!(now(question(Err("no".into()))), Err("no".into()));
    assert_eq!((now(early(Some(2))), now(early(Some(1))), now(early(None))), (Some(9), Some(1), None));
    assert_eq!(now(looped()), 3);
}

#[test]
fn a_body_may_await_and_select_again() {
    let text = now(async {
        select! {
            outer = ready("outer") => {
                let inner = select! { inner = async { ready("inner").await } => inner };
                format!("{outer} {inner} {}", ready("last").await)
            }
            () = std::future::pending() => String::new(),
        }
    });
    assert_eq!(text, "outer inner last");
}

#[test]
fn temporaries_live_as_long_as_the_wait() {
    async fn length(text: &str) -> usize {
        ready(text.len()).await
    }
    assert_eq!(
        now(async {
            select! { n = length(&String::from("four")) => n, n = length(&String::from("n")) => n }
        }),
        4
    );
}
