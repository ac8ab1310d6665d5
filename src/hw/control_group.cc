#include "hw/control_group.h"

#include <algorithm>
#include <fstream>

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

void VisitUpwards(const std::string& root, std::string path, bool version2,
                  const std::function<void(const ControlGroup&)>& visit) {
    while (true) {
        visit({root + path, path, version2});
        const size_t slash = path.rfind('/');
        if (slash == std::string::npos) return;
        path.resize(slash);
    }
}

}  // namespace

void VisitControlGroups(const std::string& groups, const std::string& membership,
                        std::string_view controller,
                        const std::function<void(const ControlGroup&)>& visit) {
    std::ifstream file(membership);
    for (std::string line; std::getline(file, line);) {  // "4:memory:/path", version 2: "0::/path"
        const size_t first = line.find(':');
        const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        if (controllers.empty()) {
            VisitUpwards(groups, path, true, visit);
            VisitUpwards(groups + "/unified", path, true, visit);
        } else if (IsListed(controllers, controller)) {
            VisitUpwards(groups + "/" + std::string(controller), path, false, visit);
        }
    }
}

std::optional<double> CpuQuota(const std::string& groups, const std::string& membership) {
    std::optional<double> least;
    VisitControlGroups(groups, membership, "cpu", [&](const ControlGroup& group) {
        double quota = 0, period = 0;
        if (group.version2) {
            std::ifstream(group.folder + "/cpu.max") >> quota >> period;  // ("max" is no number)
        } else {
            std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota;  // (-1: none)
            std::ifstream(group.folder + "/cpu.cfs_period_us") >> period;
        }
        if (quota > 0 && period > 0)
            least = std::min(least.value_or(quota / period), quota / period);
    });
    return least;
}

}  // namespace weft
