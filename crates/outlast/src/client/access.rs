//! What a client is made of, for programs that build on it.

use std::sync::Arc;

use outlast_core::{Payload, PayloadError, World};

use super::Client;

impl Client {
    /// The world of the client. Calls on it are not repeated when it does not respond.
    pub fn world(&self) -> &Arc<dyn World> {
        &self.world
    }

    /// Decodes a stored payload with the client's codec.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), outlast::Error> {
    /// # let client = outlast::Client::new(outlast::open("memory:").await?);
    /// let plain = client.decode(outlast::Payload::json(&42)?)?;
    /// assert_eq!(plain.decode::<u32>()?, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If the payload was written by another codec, or is damaged.
    pub fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        self.codec.decode(stored)
    }
}
