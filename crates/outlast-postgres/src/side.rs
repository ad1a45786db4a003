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

use crate::clock::Time;
use crate::connect::{Connector, pause};
use crate::ends::tell_ends;
use crate::error::{closed, of_postgres};
use crate::home::within;
use crate::store::{Failed, Store};
use crate::told::Told;
use crate::watch::Watch;

/// How often those who wait for ends are looked for, though nothing was heard.
const POLL: Duration = Duration::from_secs(2);

/// Of so many looks one rings for work, too.
const LOOKS_PER_RING: u32 = 10;

/// The pause between two tries to connect.
const RETRY: Duration = Duration::from_millis(200);

/// Of so many tries to connect one comes with a look for what nobody says.
const TRIES_PER_LOOK: u32 = 10;

/// How often a lock is tried that someone just looks at.
const LOCK_TRIES_MAX: usize = 50;

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
    looked: Arc<Notify>,
    store: Store,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Side {
    /// Starts the task, in the world's own thread.
    pub(crate) fn start(
        connector: Connector,
        store: Store,
        lifeline: Store,
        told: Told,
        origin: u64,
        time: Time,
    ) -> Self {
        let (asked, received) = mpsc::unbounded_channel();
        let is_silent = time.is_virtual();
        let looked: Arc<Notify> = Arc::default();
        let sessions: Arc<Mutex<BTreeSet<SessionId>>> = Arc::default();
        if !is_silent {
            let watch = Watch {
                store: lifeline,
                time,
                told: told.clone(),
                sessions: sessions.clone(),
                looked: looked.clone(),
            };
            store.handle.spawn(watch.work());
        }
        let post = Post {
            connector,
            channel: store.sql.channel.clone(),
            store: store.clone(),
            told,
            origin,
            is_silent,
            sessions,
            unlocked: BTreeSet::new(),
        };
        let task = store.handle.spawn(post.work(received));
        Self { asked, looked, store, task: Mutex::new(Some(task)) }
    }

    /// Takes the session's lock, before its row says that it exists. Repeating it changes nothing.
    pub(crate) async fn lock(&self, session: SessionId) -> Result<(), WorldError> {
        let (reply, answer) = oneshot::channel();
        self.asked.send(Asked::Lock(session, reply)).map_err(|_| closed())?;
        match within(&self.store.handle, self.store.timeout, answer).await {
            Some(answer) => answer.map_err(|_| closed())?,
            None => Err(self.store.world_error(&Failed::TooLong)),
        }
    }

    /// Frees the session's lock. Whoever does not answer has lost it, or will.
    pub(crate) async fn unlock(&self, session: SessionId) {
        let (reply, answer) = oneshot::channel();
        if self.asked.send(Asked::Unlock(session, reply)).is_ok() {
            let _ = within(&self.store.handle, self.store.timeout, answer).await;
        }
    }

    /// A worker of this process has just looked after the others.
    pub(crate) fn looked(&self) {
        self.looked.notify_one();
    }

    /// Asks the task to end; answers it, to be awaited.
    pub(crate) fn close(&self) -> Option<JoinHandle<()>> {
        let _ = self.asked.send(Asked::Close);
        self.task.lock().take()
    }
}

/// The task.
struct Post {
    connector: Connector,
    channel: String,
    store: Store,
    told: Told,
    origin: u64,
    is_silent: bool,
    sessions: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Sessions whose lock another connection still has: the one that was lost, for the server a while longer.
    unlocked: BTreeSet<SessionId>,
}

/// Why a connection is left.
enum Left {
    Closed,
    Lost,
}

/// A connection while it lasts.
struct Talk {
    client: Arc<Client>,
    heard: mpsc::UnboundedReceiver<String>,
    driver: JoinHandle<()>,
    /// Says what there is to say, while others are heard.
    speaker: JoinHandle<()>,
}

impl Drop for Talk {
    fn drop(&mut self) {
        // With the connection the speaker ends too, and leaves to the next one what it could not say.
        self.driver.abort();
    }
}

impl Post {
    async fn work(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let mut failures = 0;
        loop {
            match self.talk().await {
                Ok(mut talk) => {
                    if let Left::Closed = self.stay(&mut talk, &mut asked).await {
                        talk.speaker.abort();
                        // What cannot be said now is said by the pool.
                        let _ = self.told.voice.say(&talk.client, &self.channel, self.origin).await;
                        let _ = talk.client.batch_execute("SELECT pg_advisory_unlock_all()").await;
                        return;
                    }
                    self.told.young.listens(false);
                    tracing::warn!(place = %self.store.place, "the connection that listens to Postgres is lost");
                }
                Err(error) => {
                    failures += 1;
                    if failures % TRIES_PER_LOOK == 0 && !self.is_silent {
                        self.look_aside();
                    }
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
        let handle = self.store.handle.clone();
        let mut rest = std::pin::pin!(pause(&handle, RETRY));
        loop {
            tokio::select! {
                () = &mut rest => return false,
                next = asked.recv() => match next {
                    None | Some(Asked::Close) => return true,
                    Some(Asked::Lock(_, reply)) => {
                        let _ = reply.send(Err(error.clone()));
                    }
                    Some(Asked::Unlock(session, reply)) => {
                        self.sessions.lock().remove(&session);
                        let _ = reply.send(());
                    }
                }
            }
        }
    }

    /// Connects, takes the locks again and listens again.
    async fn talk(&mut self) -> Result<Talk, Error> {
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
        let client = Arc::new(client);
        let speaker = self.told.voice.clone().speak(client.clone(), self.channel.clone(), self.origin);
        let speaker = self.store.handle.spawn(speaker);
        let talk = Talk { client, heard, driver, speaker };
        let listen = if self.is_silent { String::new() } else { format!("LISTEN {};", self.channel) };
        talk.client
            .batch_execute(&format!("SET synchronous_commit = off; SET statement_timeout = 0; {listen}"))
            .await?;
        self.told.young.listens(!self.is_silent);
        self.unlocked = self.sessions.lock().clone();
        self.lock_again(&talk.client).await?;
        // What happened before is heard of no more.
        if !self.is_silent {
            self.told.ring_here(None);
            tell_ends(&self.store, &self.told, None).await;
        }
        Ok(talk)
    }

    /// Looks for what nobody can say, on other connections.
    fn look_aside(&self) {
        let (store, told) = (self.store.clone(), self.told.clone());
        self.store.handle.spawn(async move {
            told.ring_here(None);
            tell_ends(&store, &told, None).await;
        });
    }

    async fn stay(&mut self, talk: &mut Talk, asked: &mut mpsc::UnboundedReceiver<Asked>) -> Left {
        let mut looks = 0;
        let handle = self.store.handle.clone();
        // Both go on while other things happen, however often.
        let mut poll = Box::pin(pause(&handle, POLL));
        let mut retry = Box::pin(pause(&handle, RETRY));
        loop {
            let done = tokio::select! {
                biased;
                next = asked.recv() => match next {
                    None | Some(Asked::Close) => return Left::Closed,
                    Some(asked) => self.obey(&talk.client, asked).await,
                },
                said = talk.heard.recv() => match said {
                    None => return Left::Lost,
                    Some(said) => {
                        self.hear(&said, &mut talk.heard).await;
                        Ok(())
                    }
                },
                () = &mut retry, if !self.unlocked.is_empty() => {
                    retry = Box::pin(pause(&handle, RETRY));
                    self.lock_again(&talk.client).await
                }
                () = &mut poll, if !self.is_silent => {
                    poll = Box::pin(pause(&handle, POLL));
                    looks += 1;
                    if looks % LOOKS_PER_RING == 0 {
                        self.told.ring_here(None);
                    }
                    tell_ends(&self.store, &self.told, None).await;
                    Ok(())
                }
            };
            if done.is_err() && talk.client.is_closed() {
                return Left::Lost;
            }
        }
    }

    /// Takes locks again that were lost with a connection. Until then their sessions may be taken over.
    async fn lock_again(&mut self, client: &Client) -> Result<(), Error> {
        for session in self.unlocked.clone() {
            let row = client.query_one(&self.store.sql.lock, &[&session.to_string()]).await?;
            if row.get(0) {
                self.unlocked.remove(&session);
            }
        }
        Ok(())
    }

    async fn obey(&mut self, client: &Client, asked: Asked) -> Result<(), Error> {
        match asked {
            Asked::Close => Ok(()),
            Asked::Unlock(session, reply) => {
                let was_joined = self.sessions.lock().remove(&session);
                let freed = if !self.unlocked.remove(&session) && was_joined {
                    client.query(&self.store.sql.unlock, &[&session.to_string()]).await.map(|_| ())
                } else {
                    Ok(())
                };
                let _ = reply.send(());
                freed
            }
            Asked::Lock(session, reply) if self.sessions.lock().contains(&session) => {
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
                    self.sessions.lock().insert(session);
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
            pause(&self.store.handle, Duration::from_millis(2)).await;
        }
        Ok(false)
    }

    async fn hear(&self, first: &str, more: &mut mpsc::UnboundedReceiver<String>) {
        let mut rings = false;
        let mut started: BTreeSet<RunId> = BTreeSet::new();
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
                    word => match word.strip_prefix('+') {
                        Some(run) => started.extend(run.parse::<RunId>()),
                        None => ended.extend(word.parse::<RunId>()),
                    },
                }
            }
        };
        listen(first);
        while let Ok(said) = more.try_recv() {
            listen(&said);
        }
        if rings {
            self.told.ring_here(None);
        } else {
            started.into_iter().for_each(|run| self.told.ring_here(Some(run)));
        }
        if many_ended {
            self.told.young.listens(true);
            tell_ends(&self.store, &self.told, None).await;
        } else if !ended.is_empty() {
            ended.iter().for_each(|run| self.told.young.remove(*run));
            tell_ends(&self.store, &self.told, Some(&ended)).await;
        }
    }
}
