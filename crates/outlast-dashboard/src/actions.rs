//! Actions: forms that state their effect, and what they do.
//!
//! Every action is a page with a form, so no script can skip the confirmation. The form carries a token, and the button
//! names the action and its object.

mod bulk;
mod confirm;
mod control;
mod fork;
mod prune;
mod schedule;
mod schema_form;
mod selected;
mod send;
mod start;

pub(crate) use bulk::{
    BULK_ACTIONS, ask_bulk, ask_stop_bulk, bulk_body, is_supported, show_bulk, start_bulk, stop_bulk,
};
pub(crate) use confirm::{CONTROLS, run_actions, verb_of};
pub(crate) use control::{confirm, perform, word_of};
pub(crate) use fork::{ask_fork, fork};
pub(crate) use prune::{ask_prune, prune};
pub(crate) use schedule::{
    SCHEDULE_CONTROLS, ask_new_schedule, ask_schedule, ask_schedule_change, control_schedule, create_schedule,
};
pub(crate) use selected::{ask_selected, perform_selected, selected_actions};
pub(crate) use send::{ask_payload, send};
pub(crate) use start::{ask_start, start};

use std::collections::BTreeMap;

use outlast_api::{Problem, ProblemCode, QueryReader};

use crate::app::App;
use crate::pages::problem::{OnSite, Refusal};
use crate::site::Site;

/// The fields of a form that was sent, after its token was checked.
#[derive(Debug, Default)]
pub(crate) struct SentForm(BTreeMap<String, String>);

impl SentForm {
    /// Reads the body of a form.
    pub(crate) fn read(app: &App, site: &Site, body: &str) -> Result<Self, Refusal> {
        let mut reader = QueryReader::new(body).on(site)?;
        let names: Vec<String> =
            body.split('&').filter_map(|pair| Some(pair.split('=').next()?.to_owned())).collect();
        let fields =
            names.into_iter().filter_map(|name| Some((name.clone(), reader.all(&name).into_iter().next()?)));
        let form = Self(fields.collect());
        if app.secret.accepts(&site.caller.actor, form.text("token").unwrap_or_default()) {
            return Ok(form);
        }
        let detail =
            "the form is outdated: the server was restarted since it was shown; go back and load it again";
        Err(Refusal::new(site, Problem::new(ProblemCode::Forbidden, detail)))
    }

    /// A form with these fields.
    pub(crate) fn of_pairs(pairs: Vec<(&'static str, String)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The text of a field, unless it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
    }
}
