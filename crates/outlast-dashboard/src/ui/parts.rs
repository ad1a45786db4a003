//! Small components: icons, times, ids, tags, empty states.

use maud::{Markup, html};
use outlast_api::Rfc3339;
use outlast_core::{RunId, SessionId};

use super::words;
use crate::site::Site;

/// An icon of the sprite.
pub(crate) fn icon(site: &Site, name: &str) -> Markup {
    html! { svg class="icon" aria-hidden="true" { use href=(site.icon_href(name)) {} } }
}

/// A time relative to now. Scripts keep it current, and show the local time.
pub(crate) fn ago(site: &Site, time: Rfc3339) -> Markup {
    html! {
        time datetime=(time) title=(moment(time)) data-ago { (words::relative(time.0, site.now)) }
    }
}

/// A time as date and time of day.
pub(crate) fn at(time: Rfc3339) -> Markup {
    html! { time datetime=(time) title=(moment(time)) data-at { (moment(time)) } }
}

/// A time of day, or a day and a time: scripts choose. Without them it is the whole time.
pub(crate) fn short_time(time: Rfc3339) -> Markup {
    html! { time datetime=(time) title=(moment(time)) data-short { (moment(time)) } }
}

/// The text of a time, to the second.
pub(crate) fn moment(time: Rfc3339) -> String {
    let text = time.to_string();
    format!("{} UTC", text.get(..19).unwrap_or(&text).replace('T', " "))
}

/// The duration from a time to its end, or so far. Scripts keep an open one current.
pub(crate) fn took(site: &Site, from: Rfc3339, to: Option<Rfc3339>) -> Markup {
    let end = to.map_or(site.now, |to| to.0);
    let text = words::duration(end.since(from.0));
    match to {
        Some(_) => html! { (text) },
        None => html! { time datetime=(from) data-since { (text) } },
    }
}

/// The time until a moment, which scripts keep current.
pub(crate) fn until(site: &Site, time: Rfc3339) -> Markup {
    ago(site, time)
}

/// A link to a run, by the end of its id.
pub(crate) fn run_link(site: &Site, run: RunId) -> Markup {
    html! {
        a.id href=(site.href(&format!("/runs/{run}"))) title=(run) { (words::short(run)) }
    }
}

/// A link to a worker, by the end of its session's id.
pub(crate) fn worker_link(site: &Site, session: SessionId) -> Markup {
    let text = session.to_string();
    let short = text.get(text.len().saturating_sub(6)..).unwrap_or(&text);
    html! { a.id href=(site.href(&format!("/workers/{text}"))) title=(text) { "…" (short) } }
}

/// A button that copies a text. Scripts make it work; without them it is not shown.
pub(crate) fn copy(site: &Site, text: &str, what: &str) -> Markup {
    html! {
        button type="button" class="copy js" data-copy=(text) title={ "Copy " (what) } aria-label={ "Copy " (what) } {
            (icon(site, "copy"))
        }
    }
}

/// A tag as a link to the runs that have it.
pub(crate) fn tag(site: &Site, name: &str, value: &str) -> Markup {
    let filter = outlast_api::RunFilter {
        tags: [(name.to_owned(), value.to_owned())].into(),
        ..outlast_api::RunFilter::default()
    };
    let query = outlast_api::QueryPairs::to_query(&filter);
    html! {
        a.tag href=(site.href(&format!("/runs?{query}"))) { span { (name) } (value) }
    }
}

/// What a page shows instead of an empty list.
pub(crate) fn empty(site: &Site, name: &str, title: &str, text: Markup) -> Markup {
    html! {
        div.empty {
            (icon(site, name))
            h2 { (title) }
            (text)
        }
    }
}

/// A link to another page of a list.
pub(crate) fn pager(newer: Option<String>, older: Option<String>, words: (&str, &str)) -> Markup {
    html! {
        @if newer.is_some() || older.is_some() {
            nav.pager aria-label="Pages" {
                @if let Some(href) = newer { a.button rel="prev" href=(href) { "‹ " (words.0) } }
                @if let Some(href) = older { a.button rel="next" href=(href) { (words.1) " ›" } }
            }
        }
    }
}

/// A text as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::segment;

    #[test]
    fn a_segment_is_encoded() {
        assert_eq!(segment("check-out_v2"), "check-out_v2");
        assert_eq!(segment("a/b ?ö"), "a%2Fb%20%3F%C3%B6");
    }
}
