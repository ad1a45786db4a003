//! Reading streams: pages by index, and following a stream while it is written.

use std::collections::VecDeque;
use std::future::IntoFuture;
use std::marker::PhantomData;

use outlast_core::limits::{CHUNKS_READ_MAX, SLOW_POLL};
use outlast_core::stream::check_any_stream_name;
use outlast_core::time::event_or_time;
use outlast_core::{
    Busy, ChunkContent, ChunkKind, ChunkOrigin, EntryBody, OpNumber, RunId, RunWatch, StreamEntry,
    StreamPage, StreamView, Timestamp,
};
use serde::de::DeserializeOwned;

use super::{BoxedCall, Client};
use crate::error::Error;

impl Client {
    /// Reads a stream of a run, whose chunks are decoded as `T`: await the returned builder for a page, or
    /// [`follow`](StreamCall::follow) the stream while it is written.
    ///
    /// Text chunks are read as `String`, bytes as [`Binary`](crate::Binary), chunks of any kind as
    /// [`serde_json::Value`].
    ///
    /// Chunks of an attempt that was followed by another attempt of the same step are left out.
    /// [`with_superseded`](StreamCall::with_superseded) shows them too.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # #[workflow] async fn count(ctx: Context) -> Result<(), Error> {
    /// #     for n in 0..20 { ctx.stream("log").write(&n); }
    /// #     Ok(())
    /// # }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let world = outlast::open("memory:").await?;
    /// # let worker = Worker::builder(world.clone()).register(count).start().await?;
    /// # let client = Client::new(world);
    /// # let run = client.start(count, ()).await?;
    /// # run.output().await?;
    /// let last = client.stream::<u32>(run.id(), "log").from(-3).await?; // the last three
    /// assert!(last.is_closed); // the run has ended
    /// assert_eq!(last.values(), [17, 18, 19]);
    ///
    /// let page = client.stream::<u32>(run.id(), "log").from(5).limit(2).await?;
    /// assert_eq!((page.next, page.values()), (7, vec![5, 6]));
    /// # worker.stop().await }
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Invalid` if a chunk cannot be decoded or the name is not allowed,
    /// `Unavailable` if the world does not respond. A stream to which nothing was written is empty.
    pub fn stream<T: DeserializeOwned>(&self, run: RunId, name: impl Into<String>) -> StreamCall<'_, T> {
        StreamCall {
            client: self,
            source: StreamSource { run, name: name.into(), has_superseded: false },
            from: 0,
            limit: CHUNKS_READ_MAX,
            value: PhantomData,
        }
    }

    /// Lists the streams of a run, ordered by name, with the numbers of their entries and of chunks that were not stored.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such run, `Unavailable` if the world does not respond.
    pub async fn streams(&self, run: RunId) -> Result<Vec<StreamView>, Error> {
        Ok(self.repeat(|| self.world.streams(run)).await?)
    }

    /// Waits until a watched run may have changed. A notification may be lost, so it does not wait for long; with a
    /// virtual clock none is lost.
    pub(super) async fn wait_for_change(&self, watch: &mut RunWatch) -> Busy {
        let clock = self.world.clock();
        if clock.is_virtual() {
            return watch.changed().await;
        }
        let until = clock.now().plus(SLOW_POLL);
        match event_or_time(watch.changed(), clock.sleep_until(until)).await {
            Ok(busy) | Err(busy) => busy,
        }
    }
}

/// Which stream is read, and how.
#[derive(Clone, Debug)]
struct StreamSource {
    run: RunId,
    name: String,
    has_superseded: bool,
}

impl StreamSource {
    async fn page(&self, client: &Client, from: i64, limit: usize) -> Result<StreamPage, Error> {
        check_any_stream_name(&self.name).map_err(Error::invalid)?;
        Ok(client.repeat(|| client.world.chunks(self.run, &self.name, from, limit)).await?)
    }

    /// The chunk of an entry, unless it is left out.
    fn chunk<T: DeserializeOwned>(
        &self,
        client: &Client,
        entry: StreamEntry,
    ) -> Result<Option<Chunk<T>>, Error> {
        let StreamEntry { index, at, origin, body, is_superseded } = entry;
        let EntryBody::Chunk(ChunkContent { kind, payload }) = body else { return Ok(None) };
        if is_superseded && !self.has_superseded {
            return Ok(None);
        }
        let value = client.codec.decode(payload).and_then(|plain| plain.decode()).map_err(|error| {
            let Self { name, run, .. } = self;
            Error::invalid(format!("chunk {index} of stream `{name}` of {run}: {error}"))
        })?;
        Ok(Some(Chunk { index, at, origin, kind, is_superseded, value }))
    }
}

/// A call that reads a stream; created by [`Client::stream`]. Await it to get a page.
#[must_use = "nothing is read until the call is awaited"]
#[derive(Debug)]
pub struct StreamCall<'a, T> {
    client: &'a Client,
    source: StreamSource,
    from: i64,
    limit: usize,
    value: PhantomData<fn() -> T>,
}

/// One chunk of a stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Chunk<T> {
    /// Its number in the stream, from 0. The numbers of all entries of a stream have no gaps; those of the presented
    /// chunks have one where an attempt was superseded.
    pub index: u64,
    /// When the world accepted it.
    pub at: Timestamp,
    /// Who wrote it.
    pub origin: ChunkOrigin,
    /// Whether it is text, JSON or bytes.
    pub kind: ChunkKind,
    /// Whether it was superseded by a newer attempt.
    pub is_superseded: bool,
    /// The decoded value.
    pub value: T,
}

/// A page of a stream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChunkPage<T> {
    /// The chunks, in order.
    pub chunks: Vec<Chunk<T>>,
    /// The index from which the next page begins.
    pub next: u64,
    /// The index of the next entry that will be written.
    pub end: u64,
    /// Whether nothing will be written any more: the stream was closed, or its run has ended.
    pub is_closed: bool,
}

impl<T> ChunkPage<T> {
    /// The values of the chunks.
    pub fn values(self) -> Vec<T> {
        self.chunks.into_iter().map(|chunk| chunk.value).collect()
    }

    /// Whether there are entries after this page.
    pub fn has_more(&self) -> bool {
        self.next < self.end
    }
}

impl<'a, T: DeserializeOwned> StreamCall<'a, T> {
    /// Begins at this index; a negative one counts entries from the end.
    pub fn from(mut self, index: i64) -> Self {
        self.from = index;
        self
    }

    /// Reads at most this many entries per page; the default and the maximum is 1,000.
    pub fn limit(mut self, entries: usize) -> Self {
        self.limit = entries.clamp(1, CHUNKS_READ_MAX);
        self
    }

    /// Includes the chunks of attempts that were followed by another attempt.
    pub fn with_superseded(mut self) -> Self {
        self.source.has_superseded = true;
        self
    }

    /// Follows the stream: returns its entries from the beginning of this call on, and then each new one, until the
    /// stream is closed or its run has ended.
    ///
    /// ```
    /// # use outlast::prelude::*;
    /// # use outlast::StreamItem;
    /// async fn print(client: &Client, run: outlast::RunId) -> Result<(), Error> {
    ///     let mut tail = client.stream::<String>(run, "tokens").from(-10).follow().await?;
    ///     while let Some(item) = tail.next().await? {
    ///         match item {
    ///             StreamItem::Chunk(chunk) => print!("{}", chunk.value),
    ///             // The step begins again: what it has written so far does not count any more.
    ///             StreamItem::Restarted { .. } => println!("\n[again]"),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Client::stream`].
    pub async fn follow(self) -> Result<StreamTail<T>, Error> {
        let Self { client, source, from, limit, .. } = self;
        // Watch before reading, so that no change is missed.
        let watch = client.world.watch(source.run);
        let mut tail = StreamTail {
            client: client.clone(),
            source,
            limit,
            watch,
            entries: VecDeque::new(),
            next: 0,
            is_closed: false,
            value: PhantomData,
        };
        tail.read(from).await?;
        Ok(tail)
    }

    async fn read(self) -> Result<ChunkPage<T>, Error> {
        let Self { client, source, from, limit, .. } = self;
        let page = source.page(client, from, limit).await?;
        let (next, end, is_closed) = (page.next, page.end, page.is_closed);
        let chunks = page.entries.into_iter().filter_map(|entry| source.chunk(client, entry).transpose());
        Ok(ChunkPage { chunks: chunks.collect::<Result<_, _>>()?, next, end, is_closed })
    }
}

impl<'a, T: DeserializeOwned + Send + 'a> IntoFuture for StreamCall<'a, T> {
    type Output = Result<ChunkPage<T>, Error>;
    type IntoFuture = BoxedCall<'a, ChunkPage<T>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}

/// What a reader that follows a stream gets.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamItem<T> {
    /// A chunk.
    Chunk(Chunk<T>),
    /// A step that has written to the stream begins again with a new attempt: its chunks from this index on that were
    /// already returned are superseded.
    Restarted {
        /// The operation of the step.
        op: OpNumber,
        /// The index of the first superseded chunk.
        from: u64,
    },
}

/// Follows a stream; created by [`StreamCall::follow`].
#[derive(Debug)]
pub struct StreamTail<T> {
    client: Client,
    source: StreamSource,
    limit: usize,
    watch: RunWatch,
    /// The entries that were read and not returned.
    entries: VecDeque<StreamEntry>,
    /// The index of the next entry to read.
    next: u64,
    is_closed: bool,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> StreamTail<T> {
    /// Waits for the next chunk. Returns `None` when the stream is closed, or its run has ended, and everything was
    /// returned. If the future is dropped, nothing is lost.
    ///
    /// # Errors
    ///
    /// As [`Client::stream`]. After `Unavailable` the call can be repeated.
    pub async fn next(&mut self) -> Result<Option<StreamItem<T>>, Error> {
        let mut busy = Busy::uncounted();
        loop {
            while let Some(entry) = self.entries.pop_front() {
                if let Some(item) = self.item(entry)? {
                    return Ok(Some(item));
                }
            }
            if self.is_closed {
                return Ok(None);
            }
            self.read(i64::try_from(self.next).unwrap_or(i64::MAX)).await?;
            if self.entries.is_empty() && !self.is_closed {
                drop(busy);
                busy = self.client.wait_for_change(&mut self.watch).await;
            }
        }
    }

    /// Reads until the stream is closed or its run has ended, and returns the values of all chunks that count: those of
    /// superseded attempts are discarded, also if they were read before the attempt was superseded.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub async fn read_to_end(&mut self) -> Result<Vec<T>, Error> {
        let mut chunks: Vec<Chunk<T>> = Vec::new();
        while let Some(item) = self.next().await? {
            match item {
                StreamItem::Chunk(chunk) => chunks.push(chunk),
                StreamItem::Restarted { op, from } if !self.source.has_superseded => chunks.retain(|chunk| {
                    let is_of_step = matches!(chunk.origin, ChunkOrigin::Step { op: of, .. } if of == op);
                    !is_of_step || chunk.index < from
                }),
                StreamItem::Restarted { .. } => {}
            }
        }
        Ok(chunks.into_iter().map(|chunk| chunk.value).collect())
    }

    /// The index from which a later call continues: that of the next entry that was not returned.
    pub fn position(&self) -> u64 {
        self.entries.front().map_or(self.next, |entry| entry.index)
    }

    /// Reads the next page.
    async fn read(&mut self, from: i64) -> Result<(), Error> {
        let page = self.source.page(&self.client, from, self.limit).await?;
        self.next = page.next;
        self.is_closed = page.is_closed && page.is_last();
        self.entries.extend(page.entries);
        Ok(())
    }

    /// What the reader gets for an entry.
    fn item(&self, entry: StreamEntry) -> Result<Option<StreamItem<T>>, Error> {
        if let (EntryBody::Restarted { from }, ChunkOrigin::Step { op, .. }) = (&entry.body, entry.origin) {
            return Ok(Some(StreamItem::Restarted { op, from: *from }));
        }
        Ok(self.source.chunk(&self.client, entry)?.map(StreamItem::Chunk))
    }
}
