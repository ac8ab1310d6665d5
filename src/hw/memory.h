// Limits of the memory that this process may use: limits of control groups, and memory that is
// reserved for an integrated GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// A control group that limits memory, and the remaining memory below its limit.
struct GroupMemory {
    uint64_t left_bytes = 0;
    std::string path;  // "/kubepods/pod7"; "/" or "": the root group that the process sees
};

// Returns the group with the least remaining memory among this process's control group and all
// groups above it (the limit of a container or of Slurm). nullopt: no group has a limit. Cached
// file pages do not count as used, because the kernel reclaims them. Supports cgroup versions 1 and
// 2 (the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst). `groups` is
// /sys/fs/cgroup, `membership` is /proc/self/cgroup; tests pass other paths. AvailableMemoryBytes
// (hw/cpu.h) uses this function.
std::optional<GroupMemory> ControlGroupLeft(const std::string& groups,
                                            const std::string& membership);
// ControlGroupLeft for this process. The returned path ends with the number of the cgroup
// namespace, so two processes of a machine share the group if their paths are equal.
std::optional<GroupMemory> OwnGroupMemory();
// Free bytes of the memory that the firmware reserves for an integrated GPU at boot. AMD's driver
// amdgpu reports them (mem_info_vram_total and mem_info_vram_used in the kernel's documentation).
// nullopt: no such GPU, or its driver does not report it. `cards` is /sys/class/drm.
std::optional<uint64_t> SetApartBytes(const std::string& cards, uint32_t vendor_id,
                                      uint32_t device_id);
// As AvailableMemoryBytes, but without the limits of control groups: the memory that the machine
// has free for all processes.
uint64_t MachineMemoryBytes();

}  // namespace weft
