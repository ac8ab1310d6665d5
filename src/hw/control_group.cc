#include "hw/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace weft {
namespace {

bool IsListed(std::string_view controllers, std::string_view controller) {
    while (!controllers.empty()) {
        const size_t comma = std::min(controllers.find(','), controllers.size());
        if (controllers.substr(0, comma) == controller) return true;
        controllers.remove_prefix(std::min(comma + 1, controllers.size()));
    }
    return false;
}

// Adds the group `path` of the hierarchy in `root`, and all groups above it.
void AddUpwards(const std::string& root, std::string_view path, bool version2,
                std::vector<ControlGroup>& all) {
    while (true) {
        if (path == "/") path = "";
        all.push_back({root + std::string(path), std::string(path), version2});
        const size_t slash = path.rfind('/');
        if (slash == path.npos) return;
        path = path.substr(0, slash);
    }
}

}  // namespace

std::vector<ControlGroup> ControlGroups(const std::string& groups, std::string_view membership,
                                        std::string_view controller) {
    std::vector<ControlGroup> all;
    while (!membership.empty()) {  // "4:memory:/path"; version 2: "0::/path"
        const size_t end = std::min(membership.find('\n'), membership.size());
        const std::string_view line = membership.substr(0, end);
        membership.remove_prefix(std::min(end + 1, membership.size()));
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        const std::string_view path = line.substr(second + 1);
        if (controllers.empty()) {
            AddUpwards(groups, path, true, all);
            AddUpwards(groups + "/unified", path, true, all);
        } else if (IsListed(controllers, controller)) {
            AddUpwards(groups + "/" + std::string(controller), path, false, all);
        }
    }
    return all;
}

std::vector<ControlGroup> ReadControlGroups(const std::string& groups,
                                            const std::string& membership,
                                            std::string_view controller) {
    std::ifstream file(membership);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return ControlGroups(groups, text, controller);
}

std::optional<double> CpuQuota(const std::string& groups, const std::string& membership) {
    std::optional<double> least;
    for (const ControlGroup& group : ReadControlGroups(groups, membership, "cpu")) {
        double quota = 0, period = 0;
        if (group.version2) {
            std::ifstream(group.folder + "/cpu.max") >> quota >> period;  // ("max" is not a number)
        } else {
            std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota;  // (-1: none)
            std::ifstream(group.folder + "/cpu.cfs_period_us") >> period;
        }
        if (quota > 0 && period > 0) {
            least = std::min(least.value_or(quota / period), quota / period);
        }
    }
    return least;
}

}  // namespace weft
