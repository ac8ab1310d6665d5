#include "doctor/distinct.h"

#include <fmt/format.h>

#include <map>

namespace weft::doctor {
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins, std::set<std::string> taken) {
    std::map<std::string, int> given;
    for (const std::string& name : taken) ++given[name];
    for (const auto& host : hosts) ++given[host->host()];
    for (size_t i = 0; i < hosts.size(); ++i) {
        const std::string own = hosts[i]->host();
        const std::string origin = i < origins.size() ? origins[i] : "";
        const bool alone = given[own] == 1 || origin.empty() || origin == own;
        const std::string wanted = alone ? own : fmt::format("{} ({})", own, origin);
        std::string name = wanted;
        for (int count = 2; !taken.insert(name).second; ++count) {
            name = fmt::format("{} ({})", wanted, count);
        }
        hosts[i]->Rename(std::move(name));
    }
}

}  // namespace weft::doctor
