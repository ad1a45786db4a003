//! Where a server listens: an address, or a Unix socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::Router;
use outlast_server::serve as serve_app;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::exit::CommandError;

/// A socket that is open.
#[derive(Debug)]
pub(crate) enum OpenSocket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixSocket),
}

impl OpenSocket {
    /// Listens on an address. Returns the real address too.
    pub(crate) async fn tcp(address: SocketAddr) -> Result<(Self, SocketAddr), CommandError> {
        let (listener, address) = bind(address).await?;
        Ok((Self::Tcp(listener), address))
    }

    /// Listens on a Unix socket. Without access keys, only the user of the process may connect; with them, its group too.
    #[cfg(unix)]
    pub(crate) fn unix(path: &Path, is_for_group: bool) -> Result<Self, CommandError> {
        let failed = |error: std::io::Error| {
            CommandError::failure(format!("cannot listen on `{}`: {error}", path.display()))
        };
        remove_left_over(path)?;
        let mode = if is_for_group { 0o660 } else { 0o600 };
        let listener = bind_private(path, mode).map_err(failed)?;
        Ok(Self::Unix(UnixSocket { listener, file: SocketFile(path.to_owned()) }))
    }

    #[cfg(not(unix))]
    pub(crate) fn unix(_: &Path, _: bool) -> Result<Self, CommandError> {
        Err(CommandError::usage("this system has no Unix sockets; use `--listen`"))
    }

    /// Serves an application until the token is cancelled.
    pub(crate) async fn serve(self, app: Router, shutdown: CancellationToken) -> Result<(), CommandError> {
        match self {
            Self::Tcp(listener) => serve_app(listener, app, shutdown).await?,
            #[cfg(unix)]
            Self::Unix(UnixSocket { listener, file }) => {
                outlast_server::serve_unix(listener, app, shutdown).await?;
                drop(file);
            }
        }
        Ok(())
    }
}

/// A listener on an address, and its real address.
pub(crate) async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), CommandError> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| {
        CommandError::failure(format!("cannot listen on {address}: {error}; choose another port"))
    })?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// A Unix socket, and its file.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: tokio::net::UnixListener,
    file: SocketFile,
}

/// The file of a socket, which is removed when this is dropped.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // If it is gone already, there is nothing to do.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on a new socket that has its permissions from the moment at which others can open it.
///
/// `bind` creates the file with the permissions of the umask, which may let everybody connect until they are changed. So the
/// socket is created in a folder that only this user can enter, and moved to its path when it is ready.
#[cfg(unix)]
fn bind_private(path: &Path, mode: u32) -> std::io::Result<tokio::net::UnixListener> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    // The path of a socket has about 100 bytes, so the names are short.
    let folder = PrivateFolder(path.with_file_name(format!(".o{:x}", std::process::id())));
    std::fs::DirBuilder::new().mode(0o700).create(&folder.0)?;
    let hidden = folder.0.join("s");
    let listener = tokio::net::UnixListener::bind(&hidden)?;
    std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&hidden, path)?;
    Ok(listener)
}

/// A folder that is removed, with a socket in it, when this is dropped.
#[cfg(unix)]
struct PrivateFolder(PathBuf);

#[cfg(unix)]
impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // If they are gone already, there is nothing to do.
        let _ = std::fs::remove_file(self.0.join("s"));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Removes the socket of a process that was killed. A socket that is in use, and a file of another kind, are refused.
#[cfg(unix)]
fn remove_left_over(path: &Path) -> Result<(), CommandError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    let refused =
        |what: &str| CommandError::failure(format!("`{}` {what}; choose another path", path.display()));
    if !found.file_type().is_socket() {
        return Err(refused("exists and is not a socket"));
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(refused("is the socket of a process that is running"));
    }
    std::fs::remove_file(path)?;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Nobody else can connect before the permissions are set: what a folder that others may enter shows is either nothing
    /// or the finished socket.
    #[tokio::test]
    async fn a_socket_has_its_permissions_when_others_see_it() {
        use std::os::unix::fs::PermissionsExt;
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.sock");
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut seen = std::collections::BTreeSet::new();
                while !is_done.load(Ordering::Relaxed) {
                    for entry in std::fs::read_dir(folder.path()).unwrap().flatten() {
                        if let Ok(found) = entry.metadata() {
                            seen.insert((found.is_dir(), found.permissions().mode() & 0o777));
                        }
                    }
                }
                seen
            });
            for _ in 0..200 {
                drop(OpenSocket::unix(&path, true).unwrap());
            }
            let open = OpenSocket::unix(&path, true).unwrap();
            let connected = std::os::unix::net::UnixStream::connect(&path);
            is_done.store(true, Ordering::Relaxed);
            for (is_folder, mode) in watching.join().unwrap() {
                assert_eq!(mode, if is_folder { 0o700 } else { 0o660 });
            }
            assert!(connected.is_ok(), "a socket that was moved accepts connections");
            drop(open);
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    }

    #[tokio::test]
    async fn a_socket_of_a_killed_process_is_replaced_and_nothing_else() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.sock");
        // Dropping the listener leaves its file.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let open = OpenSocket::unix(&path, false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let used = OpenSocket::unix(&path, false).unwrap_err();
        assert!(used.to_string().contains("a process that is running"), "{used}");
        drop(open);
        assert!(!path.exists(), "the file is removed at the end");
        std::fs::write(&path, "data").unwrap();
        let file = OpenSocket::unix(&path, true).unwrap_err();
        assert!(file.to_string().contains("is not a socket"), "{file}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    }
}
