#include "cluster/worker/pending_limit.h"

#include <algorithm>
#include <map>
#include <vector>

namespace weft::cluster {
namespace {

constexpr unsigned kOneOf = 4;  // hellos that a busy listener answers

}  // namespace

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
    if (now_ns - period_ns_ >= kHelloPeriodNs) {
        hellos_.clear();
        period_ns_ = now_ns;
    }
    int& answered = hellos_[network];
    if (answered == kMostHellos) return false;
    if (busy && answered >= kFewHellos && dice_() % kOneOf != 0) return false;
    ++answered;
    return true;
}

void PendingLimit::ReturnHello(const std::string& network) {
    const auto sent = hellos_.find(network);
    if (sent != hellos_.end()) --sent->second;
}

}  // namespace weft::cluster
