// Control groups (cgroups) of this process: the limits of a container, a service or Slurm. Supports
// versions 1 and 2 (the kernel's Documentation/admin-guide/cgroup-v2.rst and cgroup-v1).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// A group as a folder of files. path: below the root that the process sees ("/kubepods/pod7"; ""
// or "/": that root).
struct ControlGroup {
    std::string folder, path;
    bool version2 = true;
};

// Calls visit for the process's group that may have files of `controller` ("memory", "cpu"), and
// for all groups above it. groups: /sys/fs/cgroup; membership: /proc/self/cgroup; tests pass other
// paths.
void VisitControlGroups(const std::string& groups, const std::string& membership,
                        std::string_view controller,
                        const std::function<void(const ControlGroup&)>& visit);

// The processors whose time these groups may use: the least quota divided by its period. nullopt:
// no group has a quota.
std::optional<double> CpuQuota(const std::string& groups = "/sys/fs/cgroup",
                               const std::string& membership = "/proc/self/cgroup");

}  // namespace weft
