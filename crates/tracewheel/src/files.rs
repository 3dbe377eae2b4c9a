//! What may be read as a small file, and what a log may be written over.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure, Or};

/// Most bytes of a key.
pub(crate) const KEY_BYTES: u64 = 64 << 10;
/// Most bytes of a scenario or of a mock's configuration.
pub(crate) const CONFIG_BYTES: u64 = 1 << 20;
/// What is looked at of a file to tell whether it is a log.
const FIRST_BYTES: u64 = 64 << 10;

/// The bytes of a file that is small by its nature; `what` names it. A device, and a pipe that has a name (it would be
/// waited for without end), are refused; a pipe that the shell hands in (`/dev/stdin`, `<(...)`) is read.
///
/// # Errors
/// Usage, when it cannot be read, is no file, or is larger than `most` bytes.
pub(crate) fn small_bytes(path: &Path, what: &str, most: u64) -> Result<Vec<u8>, Failure> {
    let cannot = || format!("cannot read {what} {}", path.display());
    let kind = fs::metadata(path).or_exit_with(Exit::Usage, cannot)?.file_type();
    let handed_in = kind.is_fifo() && (path.starts_with("/dev") || path.starts_with("/proc"));
    if !kind.is_file() && !kind.is_dir() && !handed_in {
        return Err(Failure::usage(format!(
            "{}: a device, a named pipe or a socket stands there, name a file",
            cannot()
        )));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).or_exit_with(Exit::Usage, cannot)?;
    file.take(most + 1).read_to_end(&mut bytes).or_exit_with(Exit::Usage, cannot)?;
    if bytes.len() as u64 > most {
        return Err(Failure::usage(format!(
            "{}: it is larger than {} KiB, which is too large for it; is it the right file?",
            cannot(),
            most >> 10
        )));
    }
    Ok(bytes)
}

/// As [`small_bytes`], and text.
///
/// # Errors
/// As [`small_bytes`], and when it is not UTF-8.
pub(crate) fn small_text(path: &Path, what: &str, most: u64) -> Result<String, Failure> {
    String::from_utf8(small_bytes(path, what, most)?)
        .or_exit_with(Exit::Usage, || format!("cannot read {what} {}: it is no UTF-8 text", path.display()))
}

/// The first line of a file with content, or its first 64 KiB; `None` where nothing, an empty file or no regular file
/// stands.
///
/// # Errors
/// Output, when something stands there and cannot be read.
pub(crate) fn first_line(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(FIRST_BYTES).read_to_end(&mut bytes));
    read.or_exit_with(Exit::Output, || format!("cannot look at what stands at {}", path.display()))?;
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    bytes.truncate(end);
    Ok(Some(bytes))
}

/// Whether two paths lead to one file, which may not be there yet. Devices and pipes may be shared.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => {
            (one.is_file() || one.is_dir()) && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (Err(_), Err(_)) => match (place(one), place(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        },
        _ => false,
    }
}

/// Where a file will stand that is not there yet.
fn place(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

/// The file of trusted certificates that the variable of OpenSSL and its kin names. It is for all of a machine's programs,
/// so it means nothing to a plain target.
pub(crate) fn trusted_by_environment(https: bool) -> Option<PathBuf> {
    std::env::var_os("SSL_CERT_FILE").filter(|path| https && !path.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_read_up_to_its_bound_and_a_device_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, [b'x'; 100]).unwrap();
        assert_eq!(small_text(&path, "the key", 100).ok().unwrap().len(), 100);
        let failure = small_text(&path, "the key", 99).err().unwrap();
        assert!(failure.error.to_string().contains("larger than"));
        for (path, part) in [("/dev/zero", "a device"), ("/no/such", "/no/such"), ("/", "the key /")] {
            let failure = small_text(Path::new(path), "the key", 100).err().unwrap();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(format!("{:#}", failure.error).contains(part), "{:#}", failure.error);
        }
    }

    #[test]
    fn one_file_is_known_by_all_its_names_before_and_after_it_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let (path, again) = (folder.path().join("a"), folder.path().join("./b/../a"));
        fs::create_dir(folder.path().join("b")).unwrap();
        assert!(is_same(&path, &again) && !is_same(&path, &folder.path().join("c")));
        fs::write(&path, "").unwrap();
        assert!(is_same(&path, &again) && !is_same(&path, &folder.path().join("c")));
        assert!(!is_same(Path::new("/dev/null"), Path::new("/dev/null")), "which takes everything");
    }
}
