//! Checks of files and connections: where a world is, and how a key gets to a server.

use std::path::Path;

use outlast::sqlite::SqliteUrl;
use outlast_server::AccessKey;

use super::DoctorFinding;

/// With less free space than this, a world is about to stop.
const SPACE_BAD_BYTES: u64 = 256 << 20;

/// With less free space than this, somebody should look.
const SPACE_WARNING_BYTES: u64 = 2 << 30;

/// File systems of other machines, by the number that Linux has for them: NFS, SMB, CIFS, SMB2, 9P, Ceph, FUSE.
const NETWORK_FILE_SYSTEMS: [(u64, &str); 7] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x6573_5546, "FUSE"),
];

/// Checks the folder of a SQLite file.
pub(super) fn of_folder(url: &str) -> Vec<DoctorFinding> {
    let Some(path) = SqliteUrl::parse(url).ok().filter(|_| url.starts_with("sqlite:")).map(|url| url.path)
    else {
        return Vec::new();
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut findings = Vec::new();
    if let Ok(space) = rustix::fs::statvfs(folder) {
        findings.push(of_space(folder, space.f_bavail.saturating_mul(space.f_frsize)));
    }
    #[cfg(target_os = "linux")]
    if let Ok(system) = rustix::fs::statfs(folder) {
        findings.extend(of_file_system(folder, system.f_type as u64));
    }
    findings
}

/// The free space of a disk.
pub(super) fn of_space(folder: &Path, free: u64) -> DoctorFinding {
    let text = format!("{} MiB are free in {}", free >> 20, folder.display());
    match free {
        free if free < SPACE_BAD_BYTES => {
            DoctorFinding::bad("disk", format!("{text}; free some space, or runs stop when the disk is full"))
        }
        free if free < SPACE_WARNING_BYTES => {
            DoctorFinding::warning("disk", format!("{text}; delete old runs with `outlast world prune`"))
        }
        _ => DoctorFinding::good("disk", text),
    }
}

/// A file system of another machine: several machines cannot share a SQLite file, and locks may not work.
pub(super) fn of_file_system(folder: &Path, kind: u64) -> Option<DoctorFinding> {
    let (_, name) = NETWORK_FILE_SYSTEMS.iter().find(|(number, _)| *number == kind & 0xffff_ffff)?;
    let text = format!(
        "{} is on {name}; SQLite needs a local disk: move the file, or use Postgres",
        folder.display()
    );
    Some(DoctorFinding::bad("file system", text))
}

/// How the access key gets to a server.
pub(super) fn of_server(server: &str, has_key: bool) -> Option<DoctorFinding> {
    let rest = server.strip_prefix("http://")?;
    let host = host_of_address(rest);
    let is_local = host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    if is_local || !has_key {
        return None;
    }
    let text = format!("the access key is sent to {host} without encryption; use https://");
    Some(DoctorFinding::warning("encryption", text))
}

/// The host of an address without its scheme.
fn host_of_address(rest: &str) -> &str {
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The access key itself: a typing error is found without a server.
pub(super) fn of_key(key: &str) -> DoctorFinding {
    match AccessKey::parse(key) {
        Some(_) => DoctorFinding::good("access key", "it is complete"),
        None => {
            DoctorFinding::bad("access key", "it is not an access key, or a part is missing; copy it again")
        }
    }
}

/// The file of an access key: may others read it?
#[cfg(unix)]
pub(super) fn of_key_file(file: &Path) -> Option<DoctorFinding> {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    if mode & 0o077 == 0 {
        return None;
    }
    let text = format!("others may read the access key in {0}; run `chmod 600 {0}`", file.display());
    Some(DoctorFinding::warning("access key", text))
}

#[cfg(not(unix))]
pub(super) fn of_key_file(_: &Path) -> Option<DoctorFinding> {
    None
}
