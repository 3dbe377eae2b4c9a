//! Secrets: API keys and the hash key. They come from the environment or a file, never from a flag's value.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracewheel_replay::{ApiKey, Secret};

use crate::exit::{Exit, Failure, Or};
use crate::files;

/// The API key that the flags or the scenario point at.
///
/// # Errors
/// Usage, when the variable is not set, the file cannot be read, or either is empty.
pub(crate) fn api_key(variable: Option<&str>, file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    let origin = match (variable, file) {
        (Some(name), _) => Origin::Variable(name.to_owned()),
        (None, Some(path)) => Origin::File(path.to_owned()),
        (None, None) => return Ok(None),
    };
    Ok(Some(origin.key()?.secret))
}

/// Where an API key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An environment variable.
    Variable(String),
    /// A file.
    File(PathBuf),
}

impl Origin {
    /// How a manifest names it: a file by its last name, since its folder is nobody's business.
    pub(crate) fn told(&self) -> String {
        match self {
            Origin::Variable(name) => format!("env:{name}"),
            Origin::File(path) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                format!("file:{}", name.to_string_lossy())
            }
        }
    }

    /// The key that it holds.
    ///
    /// # Errors
    /// Usage, when it is not there or holds no key.
    pub(crate) fn key(&self) -> Result<ApiKey, Failure> {
        let (text, origin) = match self {
            Origin::Variable(name) => (variable_value(name)?, format!("the environment variable {name}")),
            Origin::File(path) => {
                let text = files::small_text(path, "the API key file", files::KEY_BYTES)?;
                (text, format!("the file {}", path.display()))
            }
        };
        let key = text.trim();
        if key.is_empty() || key.bytes().any(|byte| !(b'!'..=b'~').contains(&byte)) {
            return Err(Failure::usage(format!(
                "{origin} holds no usable API key: one line of visible ASCII is needed"
            )));
        }
        Ok(ApiKey { from: self.told(), secret: Secret::new(key) })
    }
}

#[expect(clippy::disallowed_methods, reason = "the binary is the one place that reads the environment")]
fn variable_value(name: &str) -> Result<String, Failure> {
    std::env::var(name).map_err(|_| {
        Failure::usage(format!("the environment variable {name} is not set: it should hold the API key"))
    })
}

/// The key that ids are hashed with: from `file`, else from the user's own key file, made when it is missing.
///
/// # Errors
/// Usage, when the file is there but unusable; output, when it cannot be made.
pub(crate) fn hash_key(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let path = match file {
        Some(path) => path.to_owned(),
        None => user_key_file()?,
    };
    if let Err(error) = std::fs::metadata(&path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return make_key(&path);
    }
    read_hash_key(&path)
}

/// The same key, if there is one.
///
/// # Errors
/// Usage, when the file is not there or unusable.
pub(crate) fn existing_hash_key(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    match file {
        Some(path) => read_hash_key(path),
        None => read_hash_key(&user_key_file()?),
    }
}

fn read_hash_key(path: &Path) -> Result<Vec<u8>, Failure> {
    let key = files::small_bytes(path, "the key file", files::KEY_BYTES)?;
    if key.len() < 16 {
        return Err(Failure::usage(format!("the key file {} is shorter than 16 bytes", path.display())));
    }
    Ok(key)
}

fn user_key_file() -> Result<PathBuf, Failure> {
    let base = std::env::var_os("XDG_CONFIG_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .ok_or_else(|| Failure::usage("neither XDG_CONFIG_HOME nor HOME is set: give --key-file"))?;
    Ok(base.join("tracewheel").join("key"))
}

fn make_key(path: &Path) -> Result<Vec<u8>, Failure> {
    let what = || format!("cannot make the key file {}", path.display());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).or_exit_with(Exit::Output, what)?;
    }
    let key = random_bytes()?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .or_exit_with(Exit::Output, what)?;
    file.write_all(&key).or_exit_with(Exit::Output, what)?;
    Ok(key.to_vec())
}

fn random_bytes() -> Result<[u8; 32], Failure> {
    let mut bytes = [0_u8; 32];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.or_exit_with(Exit::Internal, || "cannot read /dev/urandom".to_owned())?;
    Ok(bytes)
}

/// A nonce that no earlier run has used.
///
/// # Errors
/// Internal, when the system gives no randomness.
pub(crate) fn nonce() -> Result<u64, Failure> {
    let bytes = random_bytes()?;
    Ok(u64::from_le_bytes(bytes[..8].try_into().expect("eight of thirty-two bytes")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_missing_key_file_is_made_once_readable_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/key");
        let first = hash_key(Some(&path)).ok().unwrap();
        assert_eq!(first.len(), 32);
        assert_eq!(hash_key(Some(&path)).ok().unwrap(), first);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_short_key_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(hash_key(Some(&path)).err().unwrap().exit, Exit::Usage);
    }

    #[test]
    fn an_api_key_with_a_line_break_inside_is_refused_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "sk-one\nsk-two\n").unwrap();
        let failure = api_key(None, Some(&path)).err().unwrap();
        assert!(!format!("{:#}", failure.error).contains("sk-"));
        std::fs::write(&path, "sk-one\n").unwrap();
        assert_eq!(api_key(None, Some(&path)).ok().unwrap().unwrap().expose(), "sk-one");
    }
}
