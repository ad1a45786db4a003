//! The connection beside the pool: it holds the locks of this process's sessions, hears what other processes
//! say, and tells them what this one did.
//!
//! What is said is a hint. Who hears it asks the world; what is lost is found by a slow poll. It is sent by its
//! own statement that waits for no disk, never by the statement that made the change, and what comes together
//! is sent together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{RunId, SessionId, WorldError};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Error};

use crate::connect::Connector;
use crate::ends::tell_ends;
use crate::error::of_postgres;
use crate::store::Store;
use crate::told::Told;

/// How long what happens meanwhile is gathered, once something was said.
const GAP: Duration = Duration::from_millis(3);

/// Ends that are told by name; of more than that others only hear that there were some.
const ENDS_MAX: usize = 150;

/// How often those who wait for ends are looked for, though nothing was heard.
const POLL: Duration = Duration::from_secs(2);

/// Of so many looks one rings for work, too.
const LOOKS_PER_RING: u32 = 10;

/// The pause between two tries to connect.
const RETRY: Duration = Duration::from_millis(200);

/// How often a lock is tried that someone just looks at.
const LOCK_TRIES_MAX: usize = 50;

/// What is to be said, until it is.
#[derive(Debug, Default)]
struct Unsaid {
    rings: bool,
    ended: BTreeSet<RunId>,
    many_ended: bool,
}

/// What is asked of the side's task.
enum Asked {
    Lock(SessionId, oneshot::Sender<Result<(), WorldError>>),
    Unlock(SessionId, oneshot::Sender<()>),
    Close,
}

/// The side as the world sees it.
#[derive(Debug)]
pub(crate) struct Side {
    asked: mpsc::UnboundedSender<Asked>,
    unsaid: Arc<Mutex<Unsaid>>,
    something: Arc<Notify>,
    /// Says nothing and hears nothing: a virtual clock must not be run by real time.
    is_silent: bool,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Side {
    /// Starts the task, in the world's own thread.
    pub(crate) fn start(
        connector: Connector,
        store: Store,
        told: Told,
        origin: u64,
        is_silent: bool,
    ) -> Self {
        let (asked, received) = mpsc::unbounded_channel();
        let unsaid: Arc<Mutex<Unsaid>> = Arc::default();
        let something = Arc::new(Notify::new());
        let post = Post {
            connector,
            channel: store.sql.channel.clone(),
            store: store.clone(),
            told,
            origin,
            is_silent,
            unsaid: unsaid.clone(),
            something: something.clone(),
            sessions: BTreeSet::new(),
        };
        let task = store.handle.spawn(post.work(received));
        Self { asked, unsaid, something, is_silent, task: Mutex::new(Some(task)) }
    }

    /// Takes the session's lock, before its row says that it exists. Repeating it changes nothing.
    pub(crate) async fn lock(&self, session: SessionId) -> Result<(), WorldError> {
        let (reply, answer) = oneshot::channel();
        self.asked.send(Asked::Lock(session, reply)).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Frees the session's lock.
    pub(crate) async fn unlock(&self, session: SessionId) {
        let (reply, answer) = oneshot::channel();
        if self.asked.send(Asked::Unlock(session, reply)).is_ok() {
            let _ = answer.await;
        }
    }

    /// Tells other processes, soon.
    pub(crate) fn notify(&self, rings: bool, ended: impl ExactSizeIterator<Item = RunId>) {
        if self.is_silent || !rings && ended.len() == 0 {
            return;
        }
        let mut unsaid = self.unsaid.lock();
        unsaid.rings |= rings;
        if unsaid.many_ended || unsaid.ended.len() + ended.len() > ENDS_MAX {
            unsaid.many_ended = true;
            unsaid.ended.clear();
        } else {
            unsaid.ended.extend(ended);
        }
        drop(unsaid);
        self.something.notify_one();
    }

    /// Asks the task to end; answers it, to be awaited.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        let _ = self.asked.send(Asked::Close);
        self.task.lock().take()
    }
}

fn closed() -> WorldError {
    WorldError::Unavailable("the Postgres world is closed; open it again".into())
}

/// The task.
struct Post {
    connector: Connector,
    channel: String,
    store: Store,
    told: Told,
    origin: u64,
    is_silent: bool,
    unsaid: Arc<Mutex<Unsaid>>,
    something: Arc<Notify>,
    sessions: BTreeSet<SessionId>,
}

/// Why a connection is left.
enum Left {
    Closed,
    Lost,
}

/// A connection while it lasts.
struct Talk {
    client: Client,
    heard: mpsc::UnboundedReceiver<String>,
    driver: JoinHandle<()>,
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Post {
    async fn work(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let mut is_first = true;
        loop {
            match self.talk(is_first).await {
                Ok(mut talk) => {
                    is_first = false;
                    if let Left::Closed = self.stay(&mut talk, &mut asked).await {
                        let _ = talk.client.batch_execute("SELECT pg_advisory_unlock_all()").await;
                        return;
                    }
                    tracing::warn!(place = %self.store.place, "the connection that listens to Postgres is lost");
                }
                Err(error) => {
                    let error = of_postgres(&error, &self.store.place);
                    if self.answer_all(&mut asked, &error).await {
                        return;
                    }
                }
            }
        }
    }

    /// Refuses what is asked while there is no connection, for a moment; `true` when the world is closed.
    async fn answer_all(&mut self, asked: &mut mpsc::UnboundedReceiver<Asked>, error: &WorldError) -> bool {
        let pause = crate::connect::pause(&self.store.handle, RETRY);
        let mut pause = std::pin::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return false,
                next = asked.recv() => match next {
                    None | Some(Asked::Close) => return true,
                    Some(Asked::Lock(_, reply)) => {
                        let _ = reply.send(Err(error.clone()));
                    }
                    Some(Asked::Unlock(session, reply)) => {
                        self.sessions.remove(&session);
                        let _ = reply.send(());
                    }
                }
            }
        }
    }

    /// Connects, takes the locks again and listens again.
    async fn talk(&mut self, is_first: bool) -> Result<Talk, Error> {
        let (client, mut connection) = self.connector.connect().await?;
        let (hear, heard) = mpsc::unbounded_channel();
        let driver = self.store.handle.spawn(async move {
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(said))) => {
                        let _ = hear.send(said.payload().to_owned());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return,
                }
            }
        });
        let talk = Talk { client, heard, driver };
        let listen = if self.is_silent { String::new() } else { format!("LISTEN {};", self.channel) };
        talk.client
            .batch_execute(&format!("SET synchronous_commit = off; SET statement_timeout = 0; {listen}"))
            .await?;
        for session in &self.sessions {
            // Held by nobody else: who finds it free takes the session over, and that ends it.
            talk.client.query(&self.store.sql.lock, &[&session.to_string()]).await?;
        }
        if !is_first && !self.is_silent {
            self.told.bell.ring();
            tell_ends(&self.store, &self.told, None).await;
        }
        Ok(talk)
    }

    async fn stay(&mut self, talk: &mut Talk, asked: &mut mpsc::UnboundedReceiver<Asked>) -> Left {
        let mut looks = 0;
        let something = self.something.clone();
        loop {
            let poll = crate::connect::pause(&self.store.handle, POLL);
            tokio::select! {
                biased;
                next = asked.recv() => match next {
                    None | Some(Asked::Close) => return Left::Closed,
                    Some(asked) => {
                        if self.obey(&talk.client, asked).await.is_err() && talk.client.is_closed() {
                            return Left::Lost;
                        }
                    }
                },
                said = talk.heard.recv() => match said {
                    None => return Left::Lost,
                    Some(said) => self.hear(&said, &mut talk.heard).await,
                },
                () = something.notified() => {
                    if self.say(&talk.client).await.is_err() && talk.client.is_closed() {
                        return Left::Lost;
                    }
                    // What comes meanwhile is said together.
                    crate::connect::pause(&self.store.handle, GAP).await;
                },
                () = poll, if !self.is_silent => {
                    looks += 1;
                    if looks % LOOKS_PER_RING == 0 {
                        self.told.bell.ring();
                    }
                    tell_ends(&self.store, &self.told, None).await;
                }
            }
        }
    }

    async fn obey(&mut self, client: &Client, asked: Asked) -> Result<(), Error> {
        match asked {
            Asked::Close => Ok(()),
            Asked::Unlock(session, reply) => {
                let freed = if self.sessions.remove(&session) {
                    client.query(&self.store.sql.unlock, &[&session.to_string()]).await.map(|_| ())
                } else {
                    Ok(())
                };
                let _ = reply.send(());
                freed
            }
            Asked::Lock(session, reply) if self.sessions.contains(&session) => {
                let _ = reply.send(Ok(()));
                Ok(())
            }
            Asked::Lock(session, reply) => {
                let locked = self.lock(client, session).await;
                let answer = match &locked {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(WorldError::Conflict(format!(
                        "session {session} is joined by another process; join with a new one"
                    ))),
                    Err(error) => Err(of_postgres(error, &self.store.place)),
                };
                if answer.is_ok() {
                    self.sessions.insert(session);
                }
                let _ = reply.send(answer);
                locked.map(|_| ())
            }
        }
    }

    async fn lock(&self, client: &Client, session: SessionId) -> Result<bool, Error> {
        for _ in 0..LOCK_TRIES_MAX {
            let row = client.query_one(&self.store.sql.lock, &[&session.to_string()]).await?;
            if row.get(0) {
                return Ok(true);
            }
            // Someone may just be looking whether it is free.
            crate::connect::pause(&self.store.handle, Duration::from_millis(2)).await;
        }
        Ok(false)
    }

    /// Says what there is to say: who says it, `w` for work, and which runs ended, or `*`.
    async fn say(&self, client: &Client) -> Result<(), Error> {
        let unsaid = std::mem::take(&mut *self.unsaid.lock());
        let mut text = format!("{:x} {}", self.origin, if unsaid.rings { "w" } else { "-" });
        if unsaid.many_ended {
            text.push_str(" *");
        }
        for run in &unsaid.ended {
            text.push_str(&format!(" {run}"));
        }
        client.query("SELECT pg_notify($1, $2)", &[&self.channel, &text]).await.map(|_| ())
    }

    async fn hear(&self, first: &str, more: &mut mpsc::UnboundedReceiver<String>) {
        let mut rings = false;
        let mut ended: BTreeSet<RunId> = BTreeSet::new();
        let mut many_ended = false;
        let mut listen = |said: &str| {
            let mut words = said.split(' ');
            let is_own = words.next().is_some_and(|origin| origin == format!("{:x}", self.origin));
            if is_own {
                return;
            }
            for word in words {
                match word {
                    "w" => rings = true,
                    "*" => many_ended = true,
                    word => ended.extend(word.parse::<RunId>()),
                }
            }
        };
        listen(first);
        while let Ok(said) = more.try_recv() {
            listen(&said);
        }
        if rings {
            self.told.bell.ring();
        }
        if many_ended {
            tell_ends(&self.store, &self.told, None).await;
        } else if !ended.is_empty() {
            tell_ends(&self.store, &self.told, Some(&ended)).await;
        }
    }
}
