//! `mcp`: lets assistants look at runs, by the Model Context Protocol over standard input and output.
//!
//! A message is a line with a JSON-RPC 2.0 document. The server answers requests in the order in which they arrive, one
//! after the other, and ends when the input ends. It offers only tools; without `--allow-actions` none of them changes
//! anything, and one that does is not even listed.

mod protocol;
mod tools;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use self::protocol::{RpcError, RpcRequest, negotiated_version};
use self::tools::{ToolBox, ToolCall};
use super::CommandContext;
use crate::args::McpArgs;
use crate::exit::{CommandError, Exit};

/// The longest message. A payload may have 4 MiB.
const LINE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Answers requests until the input ends.
pub(super) async fn mcp(context: &CommandContext, args: McpArgs) -> Result<Exit, CommandError> {
    let server = McpServer { tools: ToolBox::new(context.surface().await?, args.allow_actions) };
    let mut input = BufReader::new(tokio::io::stdin());
    let mut output = tokio::io::stdout();
    loop {
        let mut line = Vec::new();
        let read = (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line).await?;
        if read == 0 {
            return Ok(Exit::Done);
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(CommandError::failure(format!("a message is longer than {LINE_BYTES_MAX} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if let Some(answer) = server.answer(&line).await {
            let mut text = answer.to_string();
            text.push('\n');
            output.write_all(text.as_bytes()).await?;
            output.flush().await?;
        }
    }
}

#[derive(Debug)]
struct McpServer {
    tools: ToolBox,
}

impl McpServer {
    /// The answer to a message; none for a notification.
    async fn answer(&self, line: &[u8]) -> Option<Value> {
        let request = match RpcRequest::parse(line) {
            Ok(request) => request,
            Err((id, error)) => return Some(error.answer(&id)),
        };
        let id = request.id.clone()?;
        Some(match self.result(request).await {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(error) => error.answer(&id),
        })
    }

    async fn result(&self, request: RpcRequest) -> Result<Value, RpcError> {
        match request.method.as_str() {
            "initialize" => Ok(json!({
                "protocolVersion": negotiated_version(&request.params),
                "capabilities": { "tools": { "listChanged": false } },
                "serverInfo": { "name": "outlast", "version": env!("CARGO_PKG_VERSION") },
                "instructions": self.tools.instructions(),
            })),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": self.tools.list() })),
            "tools/call" => {
                let call = ToolCall::read(request.params)?;
                self.tools.call(call).await
            }
            method => Err(RpcError::method_not_found(method)),
        }
    }
}
