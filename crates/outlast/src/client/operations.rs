//! The operations of a run.

use std::future::IntoFuture;

use outlast_core::view::operations;
use outlast_core::{OperationKind, OperationView, Payload, RunId};

use super::{BoxedCall, Client};
use crate::error::Error;

/// A call that lists the operations of a run; created by [`Client::operations`] and by [`Client::steps`],
/// [`Client::timers`] and [`Client::hooks`]. Await it to get them.
#[must_use = "nothing is read until the call is awaited"]
#[derive(Debug)]
pub struct OperationsCall<'a> {
    client: &'a Client,
    run: RunId,
    kind: Option<OperationKind>,
    has_payloads: bool,
}

impl<'a> OperationsCall<'a> {
    pub(super) fn new(client: &'a Client, run: RunId, kind: Option<OperationKind>) -> Self {
        Self { client, run, kind, has_payloads: true }
    }

    /// Leaves the payloads out: `input` and `output` are `None`. For lists that show only names, times and outcomes.
    /// Payloads are not decoded, and discarded while the history is read.
    pub fn without_payloads(mut self) -> Self {
        self.has_payloads = false;
        self
    }

    async fn read(self) -> Result<Vec<OperationView>, Error> {
        let Self { client, run, kind, has_payloads } = self;
        let (row, now) = (client.run(run).await?, client.world.clock().now());
        let history = if has_payloads {
            client.history(run).await?
        } else {
            client.history_without_payloads(run).await?
        };
        let mut views = operations(&history);
        views.retain(|view| kind.is_none_or(|kind| view.kind == kind));
        for view in &mut views {
            if view.is_attempted_in_place(now) {
                view.crashed = row.crashes;
            }
            if has_payloads {
                client.decode_in_place(&mut view.input);
                client.decode_in_place(&mut view.output);
            } else {
                (view.input, view.output) = (None, None);
            }
        }
        Ok(views)
    }
}

impl<'a> IntoFuture for OperationsCall<'a> {
    type Output = Result<Vec<OperationView>, Error>;
    type IntoFuture = BoxedCall<'a, Vec<OperationView>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}

impl Client {
    fn decode_in_place(&self, payload: &mut Option<Payload>) {
        if let Some(decoded) = payload.clone().and_then(|stored| self.codec.decode(stored).ok()) {
            *payload = Some(decoded);
        }
    }
}
