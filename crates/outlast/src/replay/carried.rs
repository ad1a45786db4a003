//! Children that a later generation awaits, and children with their own tags, headers and deadline.
//!
//! A child that has not ended when its parent continues is carried: it keeps the number of its operation. The next
//! generation can take it over under that number. This needs no event, because a replay begins with the cut that
//! lists the children. It must happen before the first await, so that no end of a child is delivered before.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::HEADERS_BYTES_MAX;
use outlast_core::queue::{check_name, default_queue};
use outlast_core::refusal::check_tags;
use outlast_core::{Failure, FailureKind, Headers, OpNumber, ParentEnd, Tags, Timestamp};

use super::children::{ChildOp, OpenChild};
use super::handle::OpHandle;
use super::operation_table::{Op, OpKind, OperationTable, Phase};
use super::state::RunState;

/// What the start of a child contains beside what its parent's history records.
#[derive(Clone, Default)]
pub(crate) struct ChildOptions {
    /// All headers, including those that it inherits.
    pub(crate) headers: Headers,
    pub(crate) tags: Tags,
    pub(crate) deadline: Option<Timestamp>,
}

/// A text of a child's start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildText {
    Tag,
    Header,
}

impl ChildText {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Header => "header",
        }
    }
}

impl OperationTable {
    /// Opens the operation of a child that an earlier generation started, if the child has not ended.
    #[track_caller]
    fn open_carried(&mut self, op: OpNumber) -> bool {
        let Some(OpenChild { run, workflow, on_parent_end, is_shielded, .. }) = self.children.get(&op) else {
            return false;
        };
        let child = ChildOp {
            workflow: workflow.clone(),
            version: 0,
            queue: default_queue(),
            priority: 0,
            run: *run,
            input: None,
            digest: 0,
            key: None,
            timeout: None,
            timeout_at: None,
            on_parent_end: *on_parent_end,
            is_detached: false,
            is_cancelled_on_drop: false,
            ending: None,
            options: None,
            is_carried: true,
        };
        let slot = Op {
            phase: Phase::Open,
            kind: OpKind::Child(Box::new(child)),
            is_requested: true,
            is_shielded: *is_shielded,
            is_cancelled: false,
            is_dropped: false,
            location: std::panic::Location::caller(),
            waker: None,
        };
        self.ops.insert(op, slot);
        self.open += 1;
        true
    }
}

impl RunState {
    /// Takes over a child of an earlier generation; `None` if it has ended.
    #[track_caller]
    pub(crate) fn carried_child(self: &Arc<Self>, op: OpNumber) -> Option<OpHandle> {
        let is_open = self.table.lock().open_carried(op);
        is_open.then(|| OpHandle::new(self.clone(), op))
    }

    /// Adds a tag to a child, or a header, beside those that it inherits. A reserved name or a text past its limit is an
    /// error of the operation.
    pub(crate) fn add_to_child(&self, op: OpNumber, what: ChildText, name: String, value: String) {
        let reserved = check_name(what.as_str(), &name).err();
        let problem = reserved.map(|problem| Failure::new(FailureKind::Invalid, problem)).or_else(|| {
            let too_long = match what {
                ChildText::Tag => check_tags(&Tags::from([(name.clone(), value.clone())])).err(),
                ChildText::Header => self.check_header(&name, &value),
            };
            too_long.map(|problem| Failure::new(FailureKind::Limit, problem))
        });
        if let Some(problem) = problem {
            return self.fail_before_request(op, problem);
        }
        self.change_child_options(op, |options| {
            let texts = match what {
                ChildText::Tag => &mut options.tags,
                ChildText::Header => &mut options.headers,
            };
            texts.insert(name, value);
        });
    }

    /// Why a child cannot have a header beside those that it inherits.
    fn check_header(&self, name: &str, value: &str) -> Option<String> {
        let inherited: usize = self.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = inherited + name.len() + value.len();
        (bytes > HEADERS_BYTES_MAX).then(|| {
            format!("the headers have {bytes} bytes together, the limit is {HEADERS_BYTES_MAX}; use fewer or shorter ones")
        })
    }

    /// Sets the deadline of a child, counted from now.
    pub(crate) fn set_child_deadline(&self, op: OpNumber, time: Duration) {
        let deadline = self.now().plus(time);
        self.change_child_options(op, |options| options.deadline = Some(deadline));
    }

    fn change_child_options(&self, op: OpNumber, change: impl FnOnce(&mut ChildOptions)) {
        let inherited = || ChildOptions { headers: (**self.headers()).clone(), ..ChildOptions::default() };
        self.edit_child(op, |child| change(child.options.get_or_insert_with(|| Box::new(inherited()))));
    }

    /// Sets what the start of a child contains.
    pub(crate) fn set_child_options(&self, op: OpNumber, options: ChildOptions) {
        self.edit_child(op, |child| child.options = Some(Box::new(options)));
    }

    pub(crate) fn set_child_key(&self, op: OpNumber, key: String) {
        if key.is_empty() {
            let message = "the child's key is empty; give it at least one character";
            return self.fail_before_request(op, Failure::new(FailureKind::Invalid, message));
        }
        self.edit_child(op, |child| child.key = Some(key));
    }

    pub(crate) fn set_child_timeout(&self, op: OpNumber, timeout: Duration) {
        self.edit_child(op, |child| child.timeout = Some(timeout));
    }

    pub(crate) fn set_cancelled_on_drop(&self, op: OpNumber) {
        self.edit_child(op, |child| child.is_cancelled_on_drop = true);
    }

    pub(crate) fn set_on_parent_end(&self, op: OpNumber, choice: ParentEnd) {
        self.edit_child(op, |child| child.on_parent_end = choice);
    }
}
