//! Bodies of responses without tokens.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt;
use outlast_core::event::hidden_tokens::without_generated_tokens;

/// A body without generated tokens, for callers who may not send to hooks. A workflow may put them anywhere, for example a URL
/// into the input of a step.
///
/// Each frame of the body must contain whole values. Its length does not change.
pub fn body_without_tokens<B: Body<Data = Bytes>>(body: B) -> impl Body<Data = Bytes, Error = B::Error> {
    body.map_frame(|frame| {
        frame.map_data(|data| match without_generated_tokens(&data) {
            Some(changed) => changed.into(),
            None => data,
        })
    })
}
