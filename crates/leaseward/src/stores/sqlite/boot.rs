//! Which boot of the machine this is.

/// An id that changes with every boot; empty where the system has none (it is Linux's).
///
/// Where it is empty every boot looks the same: the boot clock starts from zero under old leases, which then stay held
/// for longer than they should, never for less; breaking them frees the names.
pub(super) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
