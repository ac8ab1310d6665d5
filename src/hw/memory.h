// What limits the memory that this process may have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// A control group that limits memory, and what it has left.
struct GroupMemory {
    uint64_t left_bytes = 0;
    std::string path;  // "/kubepods/pod7"; "/" or "": the one that the process sees as the root
};

// What hw/cpu.h's AvailableMemoryBytes takes of control groups: what the tightest of this process's
// own and all above it has left (a container's limit, Slurm's); none where nothing limits. Without
// what is cached of files, which the kernel takes back. Both versions (the kernel's
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). `groups` and `membership` are
// /sys/fs/cgroup and /proc/self/cgroup.
std::optional<GroupMemory> ControlGroupLeft(const std::string& groups,
                                            const std::string& membership);
// This process's. Its path has the number of the namespace that it is in behind it: two processes
// of a machine with the same path share the group.
std::optional<GroupMemory> OwnGroupMemory();
// What is free of the memory of an integrated GPU that the firmware took from the host's at its
// start (AMD's amdgpu counts it: mem_info_vram_total and _used of the kernel's documentation of the
// driver). none: no such GPU, or its driver does not say. `cards` is /sys/class/drm.
std::optional<uint64_t> SetApartBytes(const std::string& cards, uint32_t vendor_id,
                                      uint32_t device_id);
// What AvailableMemoryBytes would be without control groups: of the machine, for all its processes.
uint64_t MachineMemoryBytes();

}  // namespace weft
