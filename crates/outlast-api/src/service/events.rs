//! The events of a run: lists, and what was added since.

use outlast_core::limits::HISTORY_TURNS_READ_MAX;
use outlast_core::{Event, RunId, TurnRecord, without_secrets};
use serde_json::value::RawValue;

use super::Service;
use super::operations::slice;
use super::problems::{of_error, of_world};
use crate::cursor::{Cursor, PageDirection};
use crate::event::{EventFilter, EventJson, EventOrder};
use crate::page::{ItemPage, PageRequest};
use crate::payload::{PAYLOAD_PREVIEW_BYTES, PayloadAmount};
use crate::problem::Problem;
use crate::query::QueryPairs;

/// How far before an event the search for its turn begins. Turns are rarely longer.
const TURN_EVENTS_LIKELY: u64 = 1_024;

/// Events of a run from a number on, and where the next read begins.
#[derive(Clone, Debug)]
pub struct EventTail {
    /// The events.
    pub events: Vec<EventJson>,
    /// The number of the event after the last one.
    pub next: u64,
    /// Whether these are all that there were. One read returns a limited number of turns.
    pub is_last: bool,
}

impl Service {
    /// `GET /api/runs/{id}/events`.
    ///
    /// # Errors
    ///
    /// `not_found`, `cursor_mismatch`.
    pub async fn events(&self, run: RunId, filter: &EventFilter) -> Result<ItemPage<EventJson>, Problem> {
        let plain = EventFilter { page: PageRequest::default(), payloads: None, ..filter.clone() };
        let filters = format!("{run} {}", plain.to_query());
        let cursor = filter.page.cursor(&filters)?;
        let amount = self.amount(filter.payloads.unwrap_or_default());
        let mut events = self.client.events(run).await.map_err(of_error)?;
        events.retain(|view| {
            filter.from.is_none_or(|from| view.number >= from)
                && filter.kind.as_ref().is_none_or(|kind| view.event.kind() == kind)
                && filter.op.is_none_or(|op| view.event.concerns(outlast_core::OpNumber(op)))
        });
        if filter.order == EventOrder::NewestFirst {
            events.reverse();
        }
        let page = slice(events, |view| view.number, cursor, filter.page.limit());
        let mark = |direction, number: u64| Cursor::new(&filters, direction, number.into()).to_string();
        let items = page.items.into_iter().map(|view| {
            let turn = TurnHead { id: view.turn.to_string(), at: view.at, build: &view.build };
            let json = event_json(view.number, &turn, view.event, amount);
            EventJson { skipped: view.is_skipped, ..json }
        });
        Ok(ItemPage {
            items: items.collect(),
            next: page.next.map(|number| mark(PageDirection::Next, number)),
            prev: page.prev.map(|number| mark(PageDirection::Previous, number)),
        })
    }

    /// The events from a number on, which may be in the middle of a turn. If nothing was added, it is cheap.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn events_from(
        &self,
        run: RunId,
        from: u64,
        amount: PayloadAmount,
    ) -> Result<EventTail, Problem> {
        let turns = self.turns_from(run, from).await?;
        Ok(event_tail(turns, from, self.amount(amount)))
    }

    /// The events of the turns that begin at a number or later. The number is that of the first event of a turn, or
    /// the number after the last event.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn events_of_new_turns(
        &self,
        run: RunId,
        from: u64,
        amount: PayloadAmount,
    ) -> Result<EventTail, Problem> {
        let turns = self.client.world().history(run, from, HISTORY_TURNS_READ_MAX).await;
        Ok(event_tail(turns.map_err(of_world)?, from, self.amount(amount)))
    }

    /// The turns from the one on that contains an event. The world finds turns by their first event.
    async fn turns_from(&self, run: RunId, from: u64) -> Result<Vec<TurnRecord>, Problem> {
        let begin = from.saturating_sub(TURN_EVENTS_LIKELY);
        let world = self.client.world();
        let turns = world.history(run, begin, HISTORY_TURNS_READ_MAX).await.map_err(of_world)?;
        if begin == 0 || turns.first().is_some_and(|first| first.seq <= from) {
            return Ok(turns);
        }
        // The turn is longer than expected: read from the beginning until it is found.
        let mut next = 0;
        loop {
            let turns = world.history(run, next, HISTORY_TURNS_READ_MAX).await.map_err(of_world)?;
            let Some(last) = turns.last() else { return Ok(turns) };
            next = last.seq + last.events.len() as u64;
            if next > from || turns.len() < HISTORY_TURNS_READ_MAX {
                return Ok(turns);
            }
        }
    }
}

/// What the events of a turn have in common.
struct TurnHead<'a> {
    id: String,
    at: outlast_core::Timestamp,
    build: &'a str,
}

fn event_tail(turns: Vec<TurnRecord>, from: u64, amount: PayloadAmount) -> EventTail {
    let is_last = turns.len() < HISTORY_TURNS_READ_MAX;
    let mut tail = EventTail { events: Vec::new(), next: from, is_last };
    for turn in turns {
        let head = TurnHead { id: turn.id.to_string(), at: turn.at, build: &turn.build };
        for (number, event) in (turn.seq..).zip(turn.events).filter(|(number, _)| *number >= from) {
            tail.next = number + 1;
            tail.events.push(event_json(number, &head, event, amount));
        }
    }
    tail
}

fn event_json(number: u64, turn: &TurnHead<'_>, event: Event, amount: PayloadAmount) -> EventJson {
    // Readers must not get what lets them send.
    let event = event.without_tokens();
    let (kind, op) = (event.kind().to_owned(), event.op().map(|op| op.0));
    let (data, omitted) = match amount {
        PayloadAmount::Full => (text_of(&event), false),
        PayloadAmount::None => (text_of(&event.without_payloads()), true),
        PayloadAmount::Preview => match text_of(&event) {
            text if text.len() <= PAYLOAD_PREVIEW_BYTES => (text, false),
            _ => (text_of(&event.without_payloads()), true),
        },
    };
    EventJson {
        number,
        at: turn.at.into(),
        turn: turn.id.clone(),
        build: turn.build.to_owned(),
        kind,
        op,
        data: RawValue::from_string(data).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        omitted,
        skipped: false,
    }
}

/// The stored form of an event, without secrets.
fn text_of(event: &Event) -> String {
    let mut text = String::new();
    Event::write_all(std::slice::from_ref(event), &mut text);
    // Without the brackets of the array.
    without_secrets(&text[1..text.len() - 1]).into_owned()
}
