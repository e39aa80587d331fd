//! How much of the host's memory is free.

use std::path::Path;

/// The memory that the system could give to this process, where it tells: what is available, or what the process's control
/// group may still take if that is less, as in a container.
pub fn available_host_memory() -> Option<u128> {
    [available_memory(), control_group_memory(Path::new("/sys/fs/cgroup"))].into_iter().flatten().min()
}

fn available_memory() -> Option<u128> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u128 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// What a control group (version 2) may still take, if it has a limit. The pages of files count as in use there, but the
/// kernel drops them when memory is short.
fn control_group_memory(directory: &Path) -> Option<u128> {
    let read = |file| std::fs::read_to_string(directory.join(file)).ok();
    let number = |text: &str| text.trim().parse::<u128>().ok();
    let (limit, used) = (number(&read("memory.max")?)?, number(&read("memory.current")?)?);
    let statistics = read("memory.stat").unwrap_or_default();
    let inactive = statistics.lines().find_map(|line| number(line.strip_prefix("inactive_file ")?)).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(inactive)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_limits_the_memory() {
        let directory = tempfile::tempdir().unwrap();
        let memory_with = |file: &str, content: &str| {
            std::fs::write(directory.path().join(file), content).unwrap();
            control_group_memory(directory.path())
        };
        assert_eq!(control_group_memory(directory.path()), None);
        assert_eq!(memory_with("memory.max", "1000\n"), None);
        assert_eq!(memory_with("memory.current", "700\n"), Some(300));
        assert_eq!(memory_with("memory.stat", "anon 500\nfile 200\ninactive_file 150\n"), Some(450));
        assert_eq!(memory_with("memory.max", "400\n"), Some(0));
        assert_eq!(memory_with("memory.max", "max\n"), None);
    }
}
