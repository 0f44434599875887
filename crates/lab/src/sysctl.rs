//! Sysctls of a running host, accessed from outside.

use std::{fs, io, path::PathBuf};

use clearstream_sys::document;

use crate::{LabError, RunningLab};

/// Returns the path of a key: `net.ipv4.conf.eth0.rp_filter`, or with slashes
/// where a name contains dots: `net/ipv4/conf/eth0.7/rp_filter` (sysctl(8)).
pub(crate) fn path(key: &str) -> PathBuf {
    let separator = key.find(['.', '/']).and_then(|at| key.as_bytes().get(at));
    let path = if separator == Some(&b'/') { key.to_owned() } else { key.replace('.', "/") };
    PathBuf::from("/proc/sys").join(path)
}

pub(crate) fn write(key: &str, value: &str) -> io::Result<()> {
    fs::write(path(key), value)
}

impl RunningLab {
    /// Sets sysctls of a host, in order, and returns those that were different,
    /// with their former values. Where one cannot be set, those before it are
    /// restored.
    ///
    /// # Errors
    /// An unknown host, or a sysctl that it does not have or rejects.
    pub fn set_sysctls(
        &self,
        host: &str,
        settings: &[(String, String)],
    ) -> Result<Vec<(String, String)>, LabError> {
        let inside = self.namespaces(host)?.run(|| {
            let mut before = Vec::new();
            for (key, value) in settings {
                let outcome = document::read_text(&path(key), document::DOCUMENT_BYTES).and_then(|old| {
                    // Several numbers are separated by tabs when read.
                    let old = old.split_whitespace().collect::<Vec<&str>>().join(" ");
                    if old != *value {
                        write(key, value)?;
                        before.push((key.clone(), old));
                    }
                    Ok(())
                });
                if let Err(error) = outcome {
                    for (key, old) in before.iter().rev() {
                        // Return the first error.
                        let _ = write(key, old);
                    }
                    return Err(LabError::Sysctl {
                        host: host.to_owned(),
                        key: key.clone(),
                        value: value.clone(),
                        reason: error.to_string(),
                    });
                }
            }
            Ok(before)
        });
        inside.map_err(LabError::system(format!("enter {host}")))?
    }
}
