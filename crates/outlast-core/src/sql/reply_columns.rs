//! Replies as columns.

use std::borrow::Cow;

use super::{ColumnValue, PayloadColumns, UnreadableColumn};
use crate::reply::Reply;

/// A reply as columns of the table of replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyColumns<'a> {
    /// Its kind: `answered`, `rejected` or `not_answered`.
    pub outcome: Cow<'a, str>,
    /// The codec of the answer.
    pub codec: Option<Cow<'a, str>>,
    /// The answer, or the reason of a rejection: a text that contains whatever the payload contained.
    pub body: Option<ColumnValue<'a>>,
}

impl<'a> ReplyColumns<'a> {
    /// The columns of a reply.
    pub fn of(reply: &'a Reply) -> Self {
        let columns = |outcome: &'static str, codec, body| Self { outcome: outcome.into(), codec, body };
        match reply {
            Reply::Answered(payload) => {
                let PayloadColumns { codec, body } = PayloadColumns::of(payload);
                columns("answered", codec, Some(body))
            }
            Reply::Rejected(reason) => {
                columns("rejected", None, Some(ColumnValue::Text(reason.as_str().into())))
            }
            Reply::NotAnswered => columns("not_answered", None, None),
        }
    }

    /// The reply that was stored as these columns.
    ///
    /// # Errors
    ///
    /// If the kind is unknown, or the body is missing.
    pub fn into_reply(self) -> Result<Reply, UnreadableColumn> {
        let Self { outcome, codec, body } = self;
        let missing = || UnreadableColumn::new("body", "it is missing");
        Ok(match &*outcome {
            "answered" => {
                Reply::Answered(PayloadColumns { codec, body: body.ok_or_else(missing)? }.into_payload())
            }
            "rejected" => {
                let reason = body.ok_or_else(missing)?.into_bytes();
                Reply::Rejected(String::from_utf8_lossy(&reason).into_owned())
            }
            "not_answered" => Reply::NotAnswered,
            other => {
                let reason = format!("unknown reply `{other}`; run a newer build");
                return Err(UnreadableColumn::new("outcome", reason));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;

    #[test]
    fn a_reply_is_read_from_its_columns() {
        let replies = [
            Reply::Answered(Payload::from_json_text("[1]")),
            Reply::Answered(Payload::coded("aes", &b"\0\x01"[..])),
            Reply::Rejected("not a number: \"\0\"".into()),
            Reply::NotAnswered,
        ];
        for reply in replies {
            assert_eq!(ReplyColumns::of(&reply).into_reply(), Ok(reply.clone()));
        }
    }

    #[test]
    fn a_reply_of_a_newer_build_and_one_without_its_body_are_errors() {
        let read = |outcome: &'static str| {
            let columns = ReplyColumns { outcome: outcome.into(), codec: None, body: None };
            columns.into_reply().unwrap_err().to_string()
        };
        assert_eq!(read("postponed"), "column `outcome`: unknown reply `postponed`; run a newer build");
        assert_eq!(read("answered"), "column `body`: it is missing");
    }
}
