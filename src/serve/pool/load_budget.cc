#include "serve/pool/load_budget.h"

#include <algorithm>
#include <cmath>

namespace weft::serve {
namespace {

constexpr size_t kMostEntries = 8192;  // beyond: keys with all their time are dropped

}  // namespace

LoadBudget::Left& LoadBudget::Fill(const std::string& key, int64_t now_ms) {
    const auto fill = [&](Left& left) {
        const auto passed = static_cast<double>(std::max<int64_t>(0, now_ms - left.at_ms));
        left.ms = std::min(most_ms(), left.ms + passed * share_);
        left.at_ms = now_ms;
    };
    if (keys_.size() > kMostEntries) {
        for (auto& [name, left] : keys_) fill(left);
        std::erase_if(keys_, [&](const auto& entry) {
            return entry.first != key && entry.second.ms >= most_ms();
        });
    }
    Left& left = keys_.try_emplace(key, Left{most_ms(), now_ms}).first->second;
    fill(left);
    return left;
}

int64_t LoadBudget::WaitMs(const std::string& key, int64_t now_ms) {
    if (share_ >= 1) return 0;
    const double left = Fill(key, now_ms).ms;
    if (left > 0) return 0;
    return static_cast<int64_t>(std::ceil((1 - left) / std::max(share_, 1e-3)));
}

void LoadBudget::Charge(const std::string& key, int64_t load_ms, int64_t now_ms) {
    if (share_ < 1) Fill(key, now_ms).ms -= static_cast<double>(load_ms);
}

}  // namespace weft::serve
