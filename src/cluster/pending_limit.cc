#include "cluster/pending_limit.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <map>
#include <vector>

namespace weft::cluster {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr unsigned kOneOf = 4;  // hellos that a busy listener answers

}  // namespace

std::string NetworkOf(const std::string& from) {
    std::string host = from.substr(0, from.rfind(':'));
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    in6_addr address{};
    if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
    const uint8_t* at = address.s6_addr;
    return fmt::format("{:x}:{:x}:{:x}:{:x}", at[0] << 8 | at[1], at[2] << 8 | at[3],
                       at[4] << 8 | at[5], at[6] << 8 | at[7]);
}

std::optional<size_t> PendingLimit::Excess(std::span<const Unproved> callers) {
    const auto speaking = static_cast<size_t>(std::ranges::count_if(callers, &Unproved::speaks));
    const bool speaks = speaking > most_speaking_;
    if (!speaks && callers.size() - speaking <= most_silent_) return std::nullopt;
    std::map<std::string_view, size_t> crowds;
    size_t largest = 0;
    for (const Unproved& caller : callers) {
        if (caller.speaks == speaks) largest = std::max(largest, ++crowds[caller.network]);
    }
    std::vector<size_t> among;
    for (size_t i = 0; i < callers.size(); ++i) {
        if (callers[i].speaks != speaks || crowds[callers[i].network] < largest) continue;
        among.push_back(i);
    }
    return among[dice_() % among.size()];
}

bool PendingLimit::TakeHello(const std::string& network, int64_t now_ns, bool busy) {
    if (now_ns - second_ns_ >= kSecondNs) {
        hellos_.clear();
        second_ns_ = now_ns;
    }
    const int sent = ++hellos_[network];
    if (busy && sent > kFewHellos && dice_() % kOneOf != 0) return false;
    return sent <= kMostHellos;
}

void PendingLimit::ReturnHello(const std::string& network) {
    const auto sent = hellos_.find(network);
    if (sent != hellos_.end()) --sent->second;
}

}  // namespace weft::cluster
