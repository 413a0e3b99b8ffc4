//! File systems on which SQLite's locks and shared memory cannot be trusted.

use std::path::Path;

use crate::{Error, ErrorKind};

/// Refuses a folder on a network file system.
#[cfg(target_os = "linux")]
pub(super) fn refuse(folder: &Path) -> Result<(), Error> {
    // What cannot be asked is found out by opening the file.
    let Ok(stat) = rustix::fs::statfs(folder) else { return Ok(()) };
    // The field is signed on some architectures and 32 bits wide on others; the magics are 32 bits.
    let magic = (stat.f_type as u64) & 0xFFFF_FFFF;
    let found = if magic == FUSE {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        fuse_kind(&mounts, &folder).filter(|kind| NETWORK_FUSE.contains(&kind.as_str()))
    } else {
        NETWORK.iter().find(|(m, _)| *m == magic).map(|(_, name)| (*name).to_owned())
    };
    found.map_or(Ok(()), |name| Err(refusal(folder, &name)))
}

/// Elsewhere they are not recognised; the documentation warns.
#[cfg(not(target_os = "linux"))]
pub(super) fn refuse(_folder: &Path) -> Result<(), Error> {
    Ok(())
}

#[cfg(target_os = "linux")]
fn refusal(folder: &Path, name: &str) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!("`{}` is on a network file system ({name})", folder.display()),
    )
    .hint("file locks lie there and two holders meet; use a local disk, or a server such as `redis://…`")
}

#[cfg(target_os = "linux")]
const FUSE: u64 = 0x6573_5546;

/// From statfs(2) and the headers of the file systems themselves.
#[cfg(target_os = "linux")]
const NETWORK: &[(u64, &str)] = &[
    (0x0000_6969, "nfs"),
    (0x0000_517B, "smb"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x0102_1997, "9p"),
    (0x0000_564C, "ncp"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x00C3_6400, "ceph"),
    (0x0BD0_0BD0, "lustre"),
    (0x1983_0326, "beegfs"),
    (0x4750_4653, "gpfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x786F_4256, "vboxsf"),
    (0xBACB_ACBC, "vmhgfs"),
];

/// FUSE has one magic for all; the mount table tells them apart.
#[cfg(target_os = "linux")]
const NETWORK_FUSE: &[&str] = &[
    "fuse.sshfs",
    "fuse.glusterfs",
    "fuse.ceph-fuse",
    "fuse.s3fs",
    "fuse.gcsfuse",
    "fuse.goofys",
    "fuse.mount-s3",
    "fuse.rclone",
    "fuse.juicefs",
    "fuse.JuiceFS",
    "fuse.moosefs",
    "fuse.mfs",
    "fuse.seaweedfs",
    "fuse.davfs",
    "fuse.curlftpfs",
    "fuse.vmhgfs-fuse",
];

/// The type of the mount that a folder is in: the longest mount point above it.
#[cfg(target_os = "linux")]
fn fuse_kind(mounts: &str, folder: &Path) -> Option<String> {
    mounts
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = before.split(' ').nth(4)?;
            let kind = after.split(' ').next()?;
            folder.starts_with(point).then(|| (point.len(), kind.to_owned()))
        })
        .max_by_key(|(len, _)| *len)
        .map(|(_, kind)| kind)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn finds_the_mount_a_folder_is_in() {
        let mounts = "22 1 0:1 / / rw - ext4 /dev/a rw\n\
                      30 22 0:5 / /mnt/far rw,nosuid shared:1 - fuse.sshfs host:/ rw\n\
                      31 22 0:6 / /mnt/near rw - fuse.mergerfs a rw\n";
        let kind = |folder: &str| fuse_kind(mounts, Path::new(folder));
        assert_eq!(kind("/mnt/far/leases").as_deref(), Some("fuse.sshfs"));
        assert_eq!(kind("/mnt/near").as_deref(), Some("fuse.mergerfs"));
        assert_eq!(kind("/mnt/farther").as_deref(), Some("ext4"));
    }

    #[test]
    fn takes_a_local_folder() {
        refuse(Path::new("/proc")).expect("proc is not on the network");
    }
}
