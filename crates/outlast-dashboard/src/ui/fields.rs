//! Fields of forms.

use maud::{Markup, html};

use super::sentence::with_code;
use crate::site::Site;

/// A field of a form.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Field<'a> {
    pub(crate) name: &'a str,
    pub(crate) label: &'a str,
    pub(crate) hint: &'a str,
    pub(crate) value: &'a str,
    pub(crate) error: Option<&'a str>,
}

impl Field<'_> {
    /// A field of one line.
    pub(crate) fn line(self) -> Markup {
        let hint = format!("{}-hint", self.name);
        html! {
            div.field {
                label for=(self.name) { (self.label) }
                input type="text" id=(self.name) name=(self.name) value=(self.value) autocomplete="off"
                    spellcheck="false" aria-describedby=(hint) aria-invalid=[self.error.map(|_| "true")];
                (self.below(&hint))
            }
        }
    }

    /// A field of several lines, for JSON.
    pub(crate) fn lines(self, rows: usize) -> Markup {
        let hint = format!("{}-hint", self.name);
        html! {
            div.field {
                label for=(self.name) { (self.label) }
                textarea.mono id=(self.name) name=(self.name) rows=(rows) spellcheck="false" data-json
                    aria-describedby=(hint) aria-invalid=[self.error.map(|_| "true")] { (self.value) }
                (self.below(&hint))
            }
        }
    }

    fn below(self, id: &str) -> Markup {
        html! {
            p.hint id=(id) {
                @if let Some(error) = self.error { span.bad { (with_code(error)) " " } }
                (with_code(self.hint))
            }
        }
    }
}

/// The hidden field with the token that every form has.
pub(crate) fn token(site: &Site) -> Markup {
    html! { input type="hidden" name="token" value=(site.token); }
}
