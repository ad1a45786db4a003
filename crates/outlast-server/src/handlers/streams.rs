//! Streams of a run.

use outlast_api::ChunkFilter;

use crate::extract::{PathOf, QueryOf, ServiceOf};
use crate::reply::{Reply, ok};

pub(crate) async fn list(ServiceOf(service): ServiceOf, path: PathOf) -> Reply {
    ok(&service.streams(path.run()?).await?)
}

pub(crate) async fn chunks(
    ServiceOf(service): ServiceOf,
    path: PathOf,
    QueryOf(filter): QueryOf<ChunkFilter>,
) -> Reply {
    ok(&service.chunks(path.run()?, path.text("name")?, &filter).await?)
}
