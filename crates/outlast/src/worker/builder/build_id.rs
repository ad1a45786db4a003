//! The default build id: identifies an executable by its contents, and not by its name, size or date.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::OnceLock;

/// Limits on program headers and note segments, far above what linkers write: a file that exceeds them is not a valid
/// executable.
const HEADERS_MAX: u16 = 1_024;
const NOTE_BYTES_MAX: u64 = 64 * 1_024;

/// The type of the note that holds the linker's build id, and the name of its owner.
const NOTE_BUILD_ID: u32 = 3;
const NOTE_OWNER: &[u8] = b"GNU\0";
const SEGMENT_NOTE: u32 = 4;

/// The build id of the running executable. It is computed once per process.
pub(in crate::worker) fn executable_build_id() -> String {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let id = std::env::current_exe().and_then(|path| build_id_of(&path));
        id.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot determine the build id of the executable; name the build with `.build(…)`");
            "exe-unknown".into()
        })
    })
    .clone()
}

/// The linker's build id if the file has one, otherwise a hash of the whole file.
fn build_id_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    if let Ok(Some(id)) = linker_build_id(&mut file) {
        let digits: String = id.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
        return Ok(format!("exe-{digits}"));
    }
    file.rewind()?;
    Ok(format!("exe-{:016x}", content_hash(file)?))
}

/// A hash of the whole file.
fn content_hash(file: File) -> io::Result<u64> {
    let (mut reader, mut buffer) = (BufReader::new(file), vec![0; 256 * 1_024]);
    // A hasher with fixed keys: two processes of the same executable must compute the same id.
    #[allow(deprecated, reason = "the only hasher of std whose result is the same in every release")]
    let mut hasher = std::hash::SipHasher::new();
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.write(&buffer[..read]),
        }
    }
}

/// Finds the note `NT_GNU_BUILD_ID` of a 64-bit little-endian ELF file. `None` if the file is of another kind or has no
/// such note.
fn linker_build_id(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; 64];
    file.read_exact(&mut header)?;
    let is_elf64_little_endian = header.starts_with(b"\x7fELF\x02\x01");
    let (table, size, count) = (u64_at(&header, 32), u16_at(&header, 54), u16_at(&header, 56));
    if !is_elf64_little_endian || size < 56 || count > HEADERS_MAX {
        return Ok(None);
    }
    for index in 0..u64::from(count) {
        let mut segment = [0; 56];
        file.seek(SeekFrom::Start(table.saturating_add(index * u64::from(size))))?;
        file.read_exact(&mut segment)?;
        let (offset, length) = (u64_at(&segment, 8), u64_at(&segment, 32));
        if u32_at(&segment, 0) != SEGMENT_NOTE || length > NOTE_BYTES_MAX {
            continue;
        }
        let mut notes = vec![0; length as usize];
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(&mut notes)?;
        if let Some(id) = build_id_in(&notes) {
            return Ok(Some(id.to_vec()));
        }
    }
    Ok(None)
}

/// The build id among the notes of a segment: each is three lengths, an owner and a description, padded to 4 bytes.
fn build_id_in(mut notes: &[u8]) -> Option<&[u8]> {
    while notes.len() >= 12 {
        let (name, description) = (u32_at(notes, 0) as usize, u32_at(notes, 4) as usize);
        let kind = u32_at(notes, 8);
        let from = 12 + name.next_multiple_of(4);
        let until = from.checked_add(description)?;
        let body = notes.get(from..until)?;
        if kind == NOTE_BUILD_ID && notes.get(12..12 + name)? == NOTE_OWNER && !body.is_empty() {
            return Some(body);
        }
        notes = notes.get(until.next_multiple_of(4)..)?;
    }
    None
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// An ELF file of one note segment with this build id, then some code.
    fn elf(build_id: &[u8], code: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [NOTE_OWNER.len() as u32, build_id.len() as u32, NOTE_BUILD_ID] {
            note.extend(number.to_le_bytes());
        }
        note.extend(NOTE_OWNER);
        note.extend(build_id);
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&1_u16.to_le_bytes());
        file[64..68].copy_from_slice(&SEGMENT_NOTE.to_le_bytes());
        file[72..80].copy_from_slice(&120_u64.to_le_bytes());
        file[96..104].copy_from_slice(&(note.len() as u64).to_le_bytes());
        file.extend(note);
        file.extend(code);
        file
    }

    fn id_of(contents: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, contents).unwrap();
        build_id_of(&path).unwrap()
    }

    #[test]
    fn the_linkers_build_id_is_used() {
        assert_eq!(id_of(&elf(&[0xab; 20], b"code")), "exe-abababababababababab");
    }

    #[test]
    fn programs_of_equal_length_and_date_differ_by_their_contents() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
        fs::write(&one, b"a program without notes, 1").unwrap();
        fs::write(&other, b"a program without notes, 2").unwrap();
        let date = fs::metadata(&one).unwrap().modified().unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(date).unwrap();
        assert_ne!(build_id_of(&one).unwrap(), build_id_of(&other).unwrap());
    }

    #[test]
    fn a_copy_is_the_same_build() {
        assert_eq!(id_of(b"a program without notes"), id_of(b"a program without notes"));
    }

    #[test]
    fn damaged_notes_are_not_read_past_their_end() {
        let whole = elf(&[7; 20], b"");
        for length in 0..whole.len() {
            id_of(&whole[..length]);
        }
        let mut long = whole;
        long[124..128].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(id_of(&long).starts_with("exe-"));
    }

    #[test]
    fn the_id_of_this_program_does_not_change() {
        assert_eq!(executable_build_id(), executable_build_id());
        assert_ne!(executable_build_id(), "exe-unknown");
    }
}
