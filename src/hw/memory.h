// What limits the memory that this process may have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// What hw/cpu.h's AvailableMemoryBytes takes of control groups: what the tightest of this process's
// own and all above it has left (a container's limit, Slurm's); none where nothing limits. Without
// what is cached of files, which the kernel takes back. Both versions (the kernel's
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). `groups` and `membership` are
// /sys/fs/cgroup and /proc/self/cgroup.
std::optional<uint64_t> ControlGroupBytesLeft(const std::string& groups,
                                              const std::string& membership);

}  // namespace weft
