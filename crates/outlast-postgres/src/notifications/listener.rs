//! The listener: a task with a connection of its own, outside the pool.
//!
//! The connection has three purposes:
//!
//! * It holds the advisory locks of this process's sessions. When the process dies, the server frees them, and other
//!   processes see that the sessions are dead.
//! * It executes `LISTEN`, and receives what other processes notify.
//! * The [notifier](super::notifier) sends this process's notifications on it.
//!
//! When the connection is lost, the task connects again, takes the locks again, and polls for what it may have missed.
//! A session whose lock is free for more than a second may be taken over by another process meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Backoff, SessionId, WorldError};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Error};

use super::received::{ReceivedNotifications, received_notifications};
use super::run_ends::{deliver_ends, poll_ends};
use super::subscribers::Subscribers;
use super::takeover_task::TakeoverTask;
use crate::clock::TimeSource;
use crate::connection::connector::{Connector, pause, pause_before_retry};
use crate::connection::database::{CallError, Database};
use crate::connection::io_runtime::with_timeout;
use crate::error::{closed_error, postgres_error};

/// How often the ends of awaited runs are polled, in case a notification was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Every `POLLS_PER_WAKE`-th poll also wakes the workers of this process.
const POLLS_PER_WAKE: u32 = 10;

/// The pauses between two attempts to connect.
const CONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(500));

/// The pauses between two attempts to take the locks again that were lost with the previous connection.
const RELOCK_BACKOFF: Backoff = Backoff::constant(Duration::from_millis(250));

/// Every `ATTEMPTS_PER_POLL`-th failed attempt to connect also polls for changes on the pool.
const ATTEMPTS_PER_POLL: u32 = 10;

/// How often a lock is tried that another process holds for a moment, while it checks whether the lock is free.
const LOCK_TRIES_MAX: usize = 50;
const LOCK_BACKOFF: Backoff = Backoff::constant(Duration::from_micros(2_500));

/// The number of requests that may wait for the task. Further callers wait until there is room.
const REQUESTS_MAX: usize = 64;

/// A request to the listener's task.
enum ListenerRequest {
    Lock(SessionId, oneshot::Sender<Result<bool, WorldError>>),
    Unlock(SessionId, oneshot::Sender<()>),
}

/// The world's handle to the listener's task.
#[derive(Debug)]
pub(crate) struct Listener {
    requests: mpsc::Sender<ListenerRequest>,
    /// Notified when the world is closed.
    closed: Arc<Notify>,
    takeover_done: Arc<Notify>,
    database: Database,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Listener {
    /// Starts the task on the I/O runtime.
    pub(crate) fn start(
        connector: Connector,
        database: Database,
        beat_database: Database,
        subscribers: Subscribers,
        origin: u64,
        time: TimeSource,
    ) -> Self {
        let (requests, received) = mpsc::channel(REQUESTS_MAX);
        let closed: Arc<Notify> = Arc::default();
        let is_disabled = time.is_virtual();
        let takeover_done: Arc<Notify> = Arc::default();
        let sessions: Arc<Mutex<BTreeSet<SessionId>>> = Arc::default();
        if !is_disabled {
            let takeover_task = TakeoverTask {
                database: beat_database,
                time,
                subscribers: subscribers.clone(),
                sessions: sessions.clone(),
                takeover_done: takeover_done.clone(),
            };
            database.handle.spawn(takeover_task.run());
        }
        let listener_task = ListenerTask {
            connector,
            channel: database.sql.channel.clone(),
            database: database.clone(),
            subscribers,
            origin,
            is_disabled,
            sessions,
            unlocked_sessions: BTreeSet::new(),
            closed: closed.clone(),
        };
        let task = database.handle.spawn(listener_task.run(received));
        Self { requests, closed, takeover_done, database, task: Mutex::new(Some(task)) }
    }

    /// Takes a session's lock. It must be taken before the session's row is inserted. Returns whether this call took it:
    /// repeating the call changes nothing.
    pub(crate) async fn lock(&self, session: SessionId) -> Result<bool, WorldError> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(ListenerRequest::Lock(session, reply)).await.map_err(|_| closed_error())?;
        match with_timeout(&self.database.handle, self.database.timeout, answer).await {
            Some(answer) => answer.map_err(|_| closed_error())?,
            None => Err(self.database.world_error(&CallError::Timeout)),
        }
    }

    /// Releases a session's lock. There is no error: without an answer the connection is lost, and the lock with it.
    pub(crate) async fn unlock(&self, session: SessionId) {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(ListenerRequest::Unlock(session, reply)).await.is_ok() {
            let _ = with_timeout(&self.database.handle, self.database.timeout, answer).await;
        }
    }

    /// Postpones the next takeover of this process, because a worker has just made one that found no session with a
    /// free lock. Such a session must be checked again in time.
    pub(crate) fn takeover_done(&self) {
        self.takeover_done.notify_one();
    }

    /// Asks the task to end, and returns it so that the caller can wait for its end.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        self.closed.notify_one();
        self.task.lock().take()
    }
}

/// The state of the task.
struct ListenerTask {
    connector: Connector,
    channel: String,
    database: Database,
    subscribers: Subscribers,
    origin: u64,
    /// Whether nothing is notified or received: with a virtual clock only the locks are needed.
    is_disabled: bool,
    sessions: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Sessions whose lock is not taken yet on the current connection: for the server, the lost connection may hold it
    /// a while longer.
    unlocked_sessions: BTreeSet<SessionId>,
    closed: Arc<Notify>,
}

/// Why the task stopped using a connection.
enum ConnectionEnd {
    WorldClosed,
    ConnectionLost,
}

/// The listener's current connection.
struct ListenerConnection {
    client: Arc<Client>,
    notifications: ReceivedNotifications,
    driver: JoinHandle<()>,
    /// The task that sends this process's notifications.
    notifier_task: JoinHandle<()>,
}

impl Drop for ListenerConnection {
    fn drop(&mut self) {
        // The notifier's task ends with the connection, and leaves what it could not send to the next connection.
        self.driver.abort();
    }
}

impl ListenerTask {
    /// Connects again whenever the connection is lost, until the world is closed.
    async fn run(mut self, mut requests: mpsc::Receiver<ListenerRequest>) {
        let mut backoff = CONNECT_BACKOFF;
        loop {
            match self.connect().await {
                Ok(mut connection) => {
                    backoff.reset();
                    if let ConnectionEnd::WorldClosed = self.serve(&mut connection, &mut requests).await {
                        connection.notifier_task.abort();
                        // If this fails, the world sends the rest on a connection of the pool.
                        let notifier = &self.subscribers.notifier;
                        let _ =
                            notifier.send_on_connection(&connection.client, &self.channel, self.origin).await;
                        let _ = connection.client.batch_execute("SELECT pg_advisory_unlock_all()").await;
                        return;
                    }
                    self.subscribers.recently_started.set_listening(false);
                    tracing::warn!(
                        place = %self.database.place,
                        "the listener connection to Postgres is lost; connecting again"
                    );
                }
                Err(error) => {
                    let error = postgres_error(&error, &self.database.place);
                    let is_closed = self.refuse_requests(&mut requests, &error, &mut backoff).await;
                    if backoff.pauses().is_multiple_of(ATTEMPTS_PER_POLL) && !self.is_disabled {
                        self.poll_on_pool();
                    }
                    if is_closed {
                        return;
                    }
                }
            }
        }
    }

    /// Refuses requests until the next attempt to connect. Returns `true` if the world is closed.
    async fn refuse_requests(
        &mut self,
        requests: &mut mpsc::Receiver<ListenerRequest>,
        error: &WorldError,
        backoff: &mut Backoff,
    ) -> bool {
        let handle = self.database.handle.clone();
        let mut retry = std::pin::pin!(pause_before_retry(&handle, backoff));
        loop {
            tokio::select! {
                () = self.closed.notified() => return true,
                () = &mut retry => return false,
                request = requests.recv() => match request {
                    None => return true,
                    Some(ListenerRequest::Lock(_, reply)) => {
                        let _ = reply.send(Err(error.clone()));
                    }
                    Some(ListenerRequest::Unlock(session, reply)) => {
                        self.sessions.lock().remove(&session);
                        let _ = reply.send(());
                    }
                }
            }
        }
    }

    /// Connects, listens, and takes the locks of all sessions.
    async fn connect(&mut self) -> Result<ListenerConnection, Error> {
        let (client, mut connection) = self.connector.connect().await?;
        let (received, notifications) = received_notifications();
        let driver = self.database.handle.spawn(async move {
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(notification))) => {
                        received.put(notification.payload().to_owned());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        });
        let client = Arc::new(client);
        let notifier = self.subscribers.notifier.clone();
        let notifier_task = notifier.run_on_connection(client.clone(), self.channel.clone(), self.origin);
        let notifier_task = self.database.handle.spawn(notifier_task);
        let connection = ListenerConnection { client, notifications, driver, notifier_task };
        let listen = if self.is_disabled { String::new() } else { format!("LISTEN {};", self.channel) };
        connection
            .client
            .batch_execute(&format!("SET synchronous_commit = off; SET statement_timeout = 0; {listen}"))
            .await?;
        self.unlocked_sessions = self.sessions.lock().clone();
        self.lock_again(&connection.client).await?;
        // After the last statement that can fail: from now on, callers rely on the notifications of this connection.
        self.subscribers.recently_started.set_listening(!self.is_disabled);
        if !self.is_disabled {
            // Notifications that were sent before `LISTEN` are not received.
            self.subscribers.wake_local_workers(None);
            self.subscribers.watchers.notify_all();
            deliver_ends(&self.database, &self.subscribers, None).await;
        }
        Ok(connection)
    }

    /// Polls for changes on connections of the pool, in a task of its own.
    fn poll_on_pool(&self) {
        let (database, subscribers) = (self.database.clone(), self.subscribers.clone());
        self.database.handle.spawn(async move {
            subscribers.wake_local_workers(None);
            deliver_ends(&database, &subscribers, None).await;
        });
    }

    /// Handles requests and notifications until the world is closed or the connection is lost.
    async fn serve(
        &mut self,
        connection: &mut ListenerConnection,
        requests: &mut mpsc::Receiver<ListenerRequest>,
    ) -> ConnectionEnd {
        let (mut polls, mut last_polled) = (0, None);
        let handle = self.database.handle.clone();
        // The timers are kept across iterations, so that frequent notifications do not postpone them.
        let mut poll = Box::pin(pause(&handle, POLL_INTERVAL));
        let mut relock_backoff = RELOCK_BACKOFF;
        let mut retry = Box::pin(pause(&handle, relock_backoff.next_pause(fastrand::f64())));
        loop {
            let handled = tokio::select! {
                biased;
                () = self.closed.notified() => return ConnectionEnd::WorldClosed,
                request = requests.recv() => match request {
                    None => return ConnectionEnd::WorldClosed,
                    Some(request) => self.handle_request(&connection.client, request).await,
                },
                payload = connection.notifications.next() => match payload {
                    None => return ConnectionEnd::ConnectionLost,
                    Some(payload) => {
                        self.handle_notifications(&payload, connection).await;
                        Ok(())
                    }
                },
                () = &mut retry, if !self.unlocked_sessions.is_empty() => {
                    retry = Box::pin(pause(&handle, relock_backoff.next_pause(fastrand::f64())));
                    self.lock_again(&connection.client).await
                }
                () = &mut poll, if !self.is_disabled => {
                    poll = Box::pin(pause(&handle, POLL_INTERVAL));
                    polls += 1;
                    if polls % POLLS_PER_WAKE == 0 {
                        self.subscribers.wake_local_workers(None);
                    }
                    poll_ends(&self.database, &self.subscribers, &mut last_polled).await;
                    Ok(())
                }
            };
            if handled.is_err() && connection.client.is_closed() {
                return ConnectionEnd::ConnectionLost;
            }
        }
    }

    /// Tries to take the locks that were lost with the previous connection. Until it has its lock, a session may be
    /// taken over.
    async fn lock_again(&mut self, client: &Client) -> Result<(), Error> {
        for session in self.unlocked_sessions.clone() {
            let row = client.query_one(&self.database.sql.lock, &[&session.to_string()]).await?;
            if row.get(0) {
                self.unlocked_sessions.remove(&session);
            }
        }
        Ok(())
    }

    /// Takes or releases the lock of a session, and answers the request. Returns an error if the statement failed,
    /// which usually means that the connection is lost.
    async fn handle_request(&mut self, client: &Client, request: ListenerRequest) -> Result<(), Error> {
        match request {
            ListenerRequest::Unlock(session, reply) => {
                let was_joined = self.sessions.lock().remove(&session);
                // After a reconnect, this connection may not hold the lock yet.
                let released = if !self.unlocked_sessions.remove(&session) && was_joined {
                    client.query(&self.database.sql.unlock, &[&session.to_string()]).await.map(|_| ())
                } else {
                    Ok(())
                };
                let _ = reply.send(());
                released
            }
            ListenerRequest::Lock(session, reply) if self.sessions.lock().contains(&session) => {
                let _ = reply.send(Ok(false));
                Ok(())
            }
            ListenerRequest::Lock(session, reply) => {
                let locked = self.lock(client, session).await;
                let answer = match &locked {
                    Ok(true) => Ok(true),
                    Ok(false) => Err(WorldError::conflict(format!(
                        "session {session} is joined by another process; join with a new one"
                    ))),
                    Err(error) => Err(postgres_error(error, &self.database.place)),
                };
                if answer.is_ok() {
                    self.sessions.lock().insert(session);
                }
                let _ = reply.send(answer);
                locked.map(|_| ())
            }
        }
    }

    /// Takes a session's lock. Returns `false` if another process holds it.
    async fn lock(&self, client: &Client, session: SessionId) -> Result<bool, Error> {
        let mut backoff = LOCK_BACKOFF;
        for _ in 0..LOCK_TRIES_MAX {
            let row = client.query_one(&self.database.sql.lock, &[&session.to_string()]).await?;
            if row.get(0) {
                return Ok(true);
            }
            // Another process may hold it for a moment, to check whether it is free.
            pause_before_retry(&self.database.handle, &mut backoff).await;
        }
        Ok(false)
    }

    /// Handles a notification, and all others that have already been received.
    async fn handle_notifications(&self, first: &str, connection: &mut ListenerConnection) {
        let changes = connection.notifications.changes(first, self.origin);
        if changes.has_unnamed_writes || changes.has_unnamed_ends {
            self.subscribers.watchers.notify_all();
        } else {
            changes
                .written
                .iter()
                .chain(&changes.ended)
                .for_each(|run| self.subscribers.watchers.notify(*run));
        }
        if changes.has_work {
            self.subscribers.wake_local_workers(None);
        } else {
            changes.started.into_iter().for_each(|run| self.subscribers.wake_local_workers(Some(run)));
        }
        if changes.has_unnamed_ends {
            // Clears the cache: any run in it may have ended.
            self.subscribers.recently_started.set_listening(true);
            deliver_ends(&self.database, &self.subscribers, None).await;
        } else if !changes.ended.is_empty() {
            changes.ended.iter().for_each(|run| self.subscribers.recently_started.remove(*run));
            deliver_ends(&self.database, &self.subscribers, Some(&changes.ended)).await;
        }
    }
}
