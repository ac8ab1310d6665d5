// Control groups (cgroups) of a process: the limits of a container, a service or Slurm. Supports
// versions 1 and 2 (the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A group as a folder of files. path: below the root that the process sees ("/kubepods/pod7"; "":
// that root).
struct ControlGroup {
    std::string folder, path;
    bool version2 = true;
};

// Returns the process's group in the hierarchy of `controller` ("memory", "cpu"), and all groups
// above it. groups: the folder of all groups, /sys/fs/cgroup; membership: the text of
// /proc/self/cgroup.
std::vector<ControlGroup> ControlGroups(const std::string& groups, std::string_view membership,
                                        std::string_view controller);
// As ControlGroups, but reads /proc/self/cgroup or, in tests, another file `membership`.
std::vector<ControlGroup> ReadControlGroups(const std::string& groups,
                                            const std::string& membership,
                                            std::string_view controller);

// The processors whose time these groups may use: the least quota divided by its period. nullopt:
// no group has a quota.
std::optional<double> CpuQuota(const std::string& groups = "/sys/fs/cgroup",
                               const std::string& membership = "/proc/self/cgroup");

}  // namespace weft
