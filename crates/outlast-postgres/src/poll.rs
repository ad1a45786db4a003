//! Looking now and then, for a world that has no connection to listen on.

use std::time::Duration;

use crate::connect::pause;
use crate::ends::tell_ends;
use crate::store::Store;
use crate::told::Told;

/// How often it is looked for work, and for ends that somebody waits for. A claim is two statements and
/// a beat two more in a while: together they stay below two a second.
const POLL: Duration = Duration::from_secs(2);

/// Looks, until the world's own thread ends.
pub(crate) async fn poll(store: Store, told: Told) {
    loop {
        pause(&store.handle, POLL / 2).await;
        told.ring_here(None);
        pause(&store.handle, POLL / 2).await;
        tell_ends(&store, &told, None).await;
    }
}
