#include "hw/memory.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "hw/control_group.h"
#include "hw/cpu.h"
#include "hw/environment.h"

namespace weft {
namespace {

// The number after `key` in a file of lines "key number"; nullopt if the file or the key is
// missing.
std::optional<uint64_t> NumberOf(const std::string& path, std::string_view key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(key)) continue;
        const char* const digits = line.c_str() + key.size();
        char* end = nullptr;
        const uint64_t number = std::strtoull(digits, &end, 10);
        if (end != digits) return number;
    }
    return {};
}

// File names of one cgroup version. soft: above this limit, the kernel slows the process down
// instead of killing it.
struct Names {
    const char *limit, *soft, *used, *cached;
};
constexpr Names kVersion2{"memory.max", "memory.high", "memory.current", "inactive_file "};
constexpr Names kVersion1{"memory.limit_in_bytes", "", "memory.usage_in_bytes",
                          "total_inactive_file "};
// Version 1 reports "no limit" as the largest number of pages.
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<uint64_t> LeftIn(const std::string& folder, const Names& names) {
    auto limit = NumberOf(folder + "/" + names.limit, "");  // ("max" is not a number)
    const auto soft = NumberOf(folder + "/" + names.soft, "");
    if (soft) limit = std::min(limit.value_or(*soft), *soft);
    const auto used = NumberOf(folder + "/" + names.used, "");
    if (!limit || !used || *limit >= kNoLimit) return {};
    const uint64_t cached = NumberOf(folder + "/memory.stat", names.cached).value_or(0);
    const uint64_t kept = *used - std::min(*used, cached);
    return *limit - std::min(*limit, kept);
}

}  // namespace

uint64_t ResidentBytes() {
    return NumberOf("/proc/self/status", "VmRSS:").value_or(0) * 1024;
}

std::optional<GroupMemory> ControlGroupLeft(const std::string& groups,
                                            const std::string& membership) {
    std::optional<GroupMemory> least;
    for (const ControlGroup& group : ReadControlGroups(groups, membership, "memory")) {
        const auto left = LeftIn(group.folder, group.version2 ? kVersion2 : kVersion1);
        if (!left || (least && *left >= least->left_bytes)) continue;
        least = GroupMemory{*left, group.path};
    }
    return least;
}

std::optional<GroupMemory> OwnGroupMemory() {
    auto group = ControlGroupLeft("/sys/fs/cgroup", "/proc/self/cgroup");
    struct stat space {};
    if (group && ::stat("/proc/self/ns/cgroup", &space) == 0) {
        group->path += fmt::format(" ({})", space.st_ino);
    }
    return group;
}

std::optional<uint64_t> SetApartBytes(const std::string& cards, uint32_t vendor_id,
                                      uint32_t device_id) {
    const auto id = [](const std::string& path) -> uint64_t {  // "0x1002"
        std::ifstream file(path);
        std::string text;
        file >> text;
        return std::strtoull(text.c_str(), nullptr, 16);
    };
    std::error_code failed;
    std::filesystem::directory_iterator card(cards, failed);
    for (; !failed && card != std::filesystem::directory_iterator(); card.increment(failed)) {
        const std::string device = card->path().string() + "/device/";
        if (id(device + "vendor") != vendor_id || id(device + "device") != device_id) continue;
        const auto total = NumberOf(device + "mem_info_vram_total", "");
        const auto used = NumberOf(device + "mem_info_vram_used", "");
        if (total && used) return *total - std::min(*total, *used);
    }
    return {};
}

uint64_t MachineMemoryBytes() {
    auto least = NumberOf("/proc/meminfo", "MemAvailable:");
    if (least) *least *= 1024;
    const auto asked = MemoryOfEnvironment();
    if (asked) least = std::min(least.value_or(*asked), *asked);
    return least.value_or(0);
}

// The least of the machine's available memory, the control groups' and WEFT_MEMORY_MIB, which is
// for machines that are shared.
uint64_t AvailableMemoryBytes() {
    const uint64_t machine = MachineMemoryBytes();
    const auto group = ControlGroupLeft("/sys/fs/cgroup", "/proc/self/cgroup");
    if (!group) return machine;
    return machine == 0 ? group->left_bytes : std::min(machine, group->left_bytes);
}

uint64_t TotalMemoryBytes() {
    return NumberOf("/proc/meminfo", "MemTotal:").value_or(0) * 1024;
}

}  // namespace weft
