//! The signals that ask a process to stop.

/// Completes when the process gets SIGINT or SIGTERM.
pub(super) async fn stop_signal() {
    #[cfg(unix)]
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<()>();
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => drop(interrupted),
        () = terminated => {}
    }
}
