// Limits of the memory that this process may use: control groups and integrated GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// A control group that limits memory, and the memory it has left.
struct GroupMemory {
    uint64_t left_bytes = 0;
    std::string path;  // "/kubepods/pod7"; "/" or "": the root group that the process sees
};

// The group with the least memory left among this process's own control group and its parents (the
// limit of a container or of Slurm); nullopt: no group has a limit. Cached file pages do not count
// as used, since the kernel reclaims them. Supports both versions (the kernel's
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). `groups` and `membership` are
// /sys/fs/cgroup and /proc/self/cgroup. AvailableMemoryBytes (hw/cpu.h) uses it.
std::optional<GroupMemory> ControlGroupLeft(const std::string& groups,
                                            const std::string& membership);
// ControlGroupLeft of this process. The path ends with the number of the cgroup namespace: two
// processes of a machine with the same path share the group.
std::optional<GroupMemory> OwnGroupMemory();
// Free bytes of the memory that the firmware reserves for an integrated GPU at boot (AMD's amdgpu
// reports it: mem_info_vram_total and _used in the kernel's documentation of the driver). nullopt:
// no such GPU, or its driver does not report it. `cards` is /sys/class/drm.
std::optional<uint64_t> SetApartBytes(const std::string& cards, uint32_t vendor_id,
                                      uint32_t device_id);
// AvailableMemoryBytes without control groups: the machine's free memory for all its processes.
uint64_t MachineMemoryBytes();

}  // namespace weft
