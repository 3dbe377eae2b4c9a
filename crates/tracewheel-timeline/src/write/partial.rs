//! A file that has no name until it is whole: however the process ends before, nothing of it stays.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;

/// Where the system shows a process its open files: a file without a name gets one through it.
const OPEN_FILES: &str = "/proc/self/fd";

/// The name of a file that is not whole. Most file systems need none before the end; where one does, a process that is
/// killed leaves it behind.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    named: bool,
}

impl Partial {
    /// Begins a file that will stand at `target`, in the same folder, so that a rename brings it there.
    pub(super) fn create(target: &Path) -> io::Result<(Self, File)> {
        let path = partial_path(target);
        if Path::new(OPEN_FILES).is_dir()
            && let Ok(file) =
                OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(folder_of(target))
        {
            return Ok((Self { path, named: false }, file));
        }
        let file = File::create_new(&path)?;
        Ok((Self { path, named: true }, file))
    }

    /// Puts the file, which is whole now, in the place of whatever stands at `target`.
    pub(super) fn publish(mut self, file: &File, target: &Path) -> io::Result<()> {
        if !self.named {
            let open = format!("{OPEN_FILES}/{}", file.as_raw_fd());
            let follow = AtFlags::AT_SYMLINK_FOLLOW;
            nix::unistd::linkat(AT_FDCWD, open.as_str(), AT_FDCWD, &self.path, follow)?;
            self.named = true;
        }
        fs::rename(&self.path, target)?;
        self.named = false;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.named {
            // Nothing can be done about another failure here.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// With the process id and a number, so that two writers of one target do not share it.
fn partial_path(path: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{}.partial", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_has_no_name_before_it_is_whole_and_replaces_what_stood_there() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("t");
        fs::write(&target, "old").unwrap();
        let (partial, mut file) = Partial::create(&target).unwrap();
        if !partial.named {
            assert_eq!(names(folder.path()), ["t"]);
        }
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"old");
        partial.publish(&file, &target).unwrap();
        assert_eq!(names(folder.path()), ["t"]);
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn a_file_that_had_to_have_a_name_loses_it_when_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        fs::write(&path, "").unwrap();
        drop(Partial { path: path.clone(), named: true });
        assert!(!path.exists());
    }
}
