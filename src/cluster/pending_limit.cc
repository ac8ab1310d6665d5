#include "cluster/pending_limit.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/check.h"

namespace weft::cluster {

std::string NetworkOf(const std::string& from) {
    std::string host = from.substr(0, from.rfind(':'));
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    in6_addr address{};
    if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
    const uint8_t* at = address.s6_addr;
    return fmt::format("{:x}:{:x}:{:x}:{:x}", at[0] << 8 | at[1], at[2] << 8 | at[3],
                       at[4] << 8 | at[5], at[6] << 8 | at[7]);
}

size_t PickEvictee(std::span<const Unproved> callers, std::minstd_rand& dice) {
    WEFT_CHECK(!callers.empty());
    std::map<std::string, size_t> crowds;
    std::vector<std::string> networks;
    size_t largest = 0;
    for (const Unproved& caller : callers) {
        networks.push_back(NetworkOf(caller.from));
        largest = std::max(largest, ++crowds[networks.back()]);
    }
    std::vector<size_t> silent, all;
    for (size_t i = 0; i < callers.size(); ++i) {
        if (crowds[networks[i]] < largest) continue;
        all.push_back(i);
        if (!callers[i].spoke) silent.push_back(i);
    }
    const std::vector<size_t>& among = silent.empty() ? all : silent;
    return among[dice() % among.size()];
}

}  // namespace weft::cluster
