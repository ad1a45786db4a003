//! JSON-RPC 2.0, as far as the Model Context Protocol needs it.

use serde_json::{Value, json};

/// The versions of the protocol that the server speaks, the newest first. They differ in what this server does not use.
const VERSIONS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// A request or a notification.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RpcRequest {
    /// The id; a notification has none.
    pub(super) id: Option<Value>,
    pub(super) method: String,
    pub(super) params: Value,
}

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    code: i32,
    message: String,
}

impl RpcError {
    pub(super) fn method_not_found(method: &str) -> Self {
        Self { code: -32601, message: format!("there is no method `{method}`") }
    }

    pub(super) fn invalid_params(message: impl Into<String>) -> Self {
        Self { code: -32602, message: message.into() }
    }

    fn invalid_request(message: &str) -> Self {
        Self { code: -32600, message: message.into() }
    }

    /// The answer to the request with this id.
    pub(super) fn answer(&self, id: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": id, "error": { "code": self.code, "message": self.message } })
    }
}

impl RpcRequest {
    /// Reads a message. An error has the id of the message, or null if it is not known.
    pub(super) fn parse(line: &[u8]) -> Result<Self, (Value, RpcError)> {
        let message: Value = serde_json::from_slice(line).map_err(|error| {
            (Value::Null, RpcError { code: -32700, message: format!("not JSON: {error}") })
        })?;
        let Value::Object(mut fields) = message else {
            return Err((
                Value::Null,
                RpcError::invalid_request("a message is an object; batches are not supported"),
            ));
        };
        let id = fields.remove("id");
        let refuse = |message: &str| (id.clone().unwrap_or(Value::Null), RpcError::invalid_request(message));
        if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
            return Err(refuse("`jsonrpc` is not \"2.0\""));
        }
        if id.as_ref().is_some_and(|id| !id.is_string() && !id.is_number()) {
            return Err((Value::Null, RpcError::invalid_request("`id` is neither text nor a number")));
        }
        let Some(Value::String(method)) = fields.remove("method") else {
            return Err(refuse("`method` is missing; this server sends no requests"));
        };
        let params = fields.remove("params").unwrap_or_else(|| json!({}));
        Ok(Self { id, method, params })
    }
}

/// The version that client and server speak: the client's, if the server knows it.
pub(super) fn negotiated_version(params: &Value) -> &'static str {
    let asked = params["protocolVersion"].as_str();
    VERSIONS.into_iter().find(|version| Some(*version) == asked).unwrap_or(VERSIONS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_of(line: &str) -> Option<i32> {
        RpcRequest::parse(line.as_bytes()).err().map(|(_, error)| error.code)
    }

    #[test]
    fn messages_that_are_not_requests_are_refused() {
        assert_eq!(code_of("{"), Some(-32700));
        for line in [
            "[]",
            "7",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
        ] {
            assert_eq!(code_of(line), Some(-32600), "{line}");
        }
        let (id, _) = RpcRequest::parse(br#"{"jsonrpc":"2.0","id":"a"}"#).unwrap_err();
        assert_eq!(id, "a");
        let notification = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(RpcRequest::parse(notification).unwrap().id, None);
    }

    #[test]
    fn the_version_is_that_of_the_client_if_it_is_known() {
        let version = |asked: &str| negotiated_version(&json!({ "protocolVersion": asked }));
        assert_eq!(version("2024-11-05"), "2024-11-05");
        assert_eq!(version("1999-01-01"), VERSIONS[0]);
        assert_eq!(negotiated_version(&json!({})), VERSIONS[0]);
    }
}
