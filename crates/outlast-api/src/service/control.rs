//! Controlling runs.

use outlast::{Cancel, Client, Controlled, Error};
use outlast_core::{OpNumber, Payload, RunId};

use super::problems::{check_reason, of_error, of_payload};
use super::start::StartedJson;
use super::{Caller, Service};
use crate::control::{
    CancelRequest, ControlledJson, DidWhat, PauseRequest, RestartRequest, TerminateRequest, WakeRequest,
};
use crate::problem::{Problem, ProblemCode};

impl Service {
    /// `POST /api/runs/{id}/cancel`.
    ///
    /// # Errors
    ///
    /// `not_found`, `too_long`.
    pub async fn cancel(
        &self,
        caller: &Caller,
        run: RunId,
        request: &CancelRequest,
    ) -> Result<ControlledJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let reason = reason(caller, request.reason.as_deref());
        let did = self.acting_as(caller).cancel(run, &reason).await.map(did_cancel);
        self.controlled(run, did).await
    }

    /// `POST /api/runs/{id}/terminate`.
    ///
    /// # Errors
    ///
    /// `not_found`, `too_long`.
    pub async fn terminate(
        &self,
        caller: &Caller,
        run: RunId,
        request: &TerminateRequest,
    ) -> Result<ControlledJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let (client, reason) = (self.acting_as(caller), reason(caller, request.reason.as_deref()));
        let call = client.terminate(run, &reason);
        let call = if request.compensating { call.compensating() } else { call };
        let did = call.await.map(did_cancel);
        self.controlled(run, did).await
    }

    /// `POST /api/runs/{id}/pause`.
    ///
    /// # Errors
    ///
    /// `not_found`, `run_ended`, `conflict` if it was asked to stop, `too_long`.
    pub async fn pause(
        &self,
        caller: &Caller,
        run: RunId,
        request: &PauseRequest,
    ) -> Result<ControlledJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let client = self.acting_as(caller);
        let did = client.pause(run).reason(request.reason.clone().unwrap_or_default()).await.map(did);
        self.controlled(run, did).await
    }

    /// `POST /api/runs/{id}/resume`.
    ///
    /// # Errors
    ///
    /// `not_found`, `run_ended`, `conflict` if a worker holds it.
    pub async fn resume(&self, caller: &Caller, run: RunId) -> Result<ControlledJson, Problem> {
        let did = self.acting_as(caller).resume(run).await.map(did);
        self.controlled(run, did).await
    }

    /// `POST /api/runs/{id}/wake`.
    ///
    /// # Errors
    ///
    /// `not_found`, `run_ended`, `limit` if the inbox is full.
    pub async fn wake(
        &self,
        caller: &Caller,
        run: RunId,
        request: &WakeRequest,
    ) -> Result<ControlledJson, Problem> {
        let client = self.acting_as(caller);
        let woken = match request.op {
            Some(op) => client.wake_timer(run, OpNumber(op)).await,
            None => client.wake(run).await,
        };
        self.controlled(run, woken.map(|()| DidWhat::Requested)).await
    }

    /// `POST /api/runs/{id}/quarantine`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn quarantine(&self, caller: &Caller, run: RunId) -> Result<ControlledJson, Problem> {
        let did = self.acting_as(caller).quarantine(run).await.map(did);
        self.controlled(run, did).await
    }

    /// `POST /api/runs/{id}/release`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn release(&self, caller: &Caller, run: RunId) -> Result<ControlledJson, Problem> {
        let did = self.acting_as(caller).release(run).await.map(did);
        self.controlled(run, did).await
    }

    /// `POST /api/runs/{id}/restart`.
    ///
    /// # Errors
    ///
    /// `not_found`, `input_invalid`, `too_long`.
    pub async fn restart(
        &self,
        caller: &Caller,
        run: RunId,
        request: &RestartRequest,
    ) -> Result<StartedJson, Problem> {
        let client = self.acting_as(caller);
        let mut call = client.restart::<serde_json::Value>(run);
        if let Some(input) = &request.input {
            Payload::json(input).map_err(|error| of_payload("/input", &error))?;
            call = call.with_input(input);
        }
        match call.await {
            Ok(restarted) => Ok(StartedJson { run: self.run(restarted.id()).await?, is_new: true }),
            Err(error) if error.kind() == outlast::ErrorKind::Invalid => {
                Err(Problem::new(ProblemCode::InputInvalid, error.to_string()))
            }
            Err(error) => Err(of_error(error)),
        }
    }

    /// `DELETE /api/runs/{id}`.
    ///
    /// # Errors
    ///
    /// `not_found`, `conflict` if it has not ended or is in quarantine.
    pub async fn delete(&self, caller: &Caller, run: RunId) -> Result<(), Problem> {
        match self.acting_as(caller).delete(run).await {
            Ok(Controlled::Nothing) => {
                Err(Problem::new(ProblemCode::NotFound, format!("there is no run {run}")))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(of_error(error).of_run(run)),
        }
    }

    pub(super) fn acting_as(&self, caller: &Caller) -> Client {
        self.client.acting_as(caller.actor.as_str())
    }

    pub(super) async fn controlled(
        &self,
        run: RunId,
        did: Result<DidWhat, Error>,
    ) -> Result<ControlledJson, Problem> {
        match did {
            Ok(did) => Ok(ControlledJson { did, run: self.run(run).await?, plan: None }),
            Err(error) => Err(self.refused_by(run, error).await),
        }
    }
}

/// The reason that history shows.
pub(super) fn reason(caller: &Caller, given: Option<&str>) -> String {
    match given.filter(|reason| !reason.is_empty()) {
        Some(reason) => reason.to_owned(),
        None => format!("requested by {}", caller.actor),
    }
}

pub(super) fn did(answer: Controlled) -> DidWhat {
    match answer {
        Controlled::Requested => DidWhat::Requested,
        Controlled::Already => DidWhat::Already,
        _ => DidWhat::Nothing,
    }
}

fn did_cancel(answer: Cancel) -> DidWhat {
    did(answer.into())
}
