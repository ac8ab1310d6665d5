#include "train/data/mixture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "train/data/random.h"

namespace weft::train {
namespace {

// The shares of `all` in proportion to the weights: rounded down, and one more for the largest
// remainders.
std::vector<uint64_t> SharesOf(uint64_t all, std::span<const double> weights, double sum) {
    std::vector<uint64_t> shares;
    std::vector<double> rests;
    uint64_t left = all;
    for (const double weight : weights) {
        const double exact = static_cast<double>(all) * (weight / sum);
        const auto whole = std::min(left, static_cast<uint64_t>(exact));
        shares.push_back(whole);
        rests.push_back(weight > 0 ? exact - static_cast<double>(whole) : -1);
        left -= whole;
    }
    for (; left > 0; --left) {
        const auto largest = std::ranges::max_element(rests);
        ++shares[static_cast<size_t>(largest - rests.begin())];
        *largest -= 1;
    }
    return shares;
}

}  // namespace

Result<Mixture> Mixture::Make(std::span<const uint64_t> sizes, std::span<const double> weights,
                              bool shuffle, uint64_t seed) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const bool valid = std::ranges::all_of(weights, [](double weight) { return weight >= 0; });
    if (sizes.size() != weights.size() || !valid || !(sum > 0) || !std::isfinite(sum)) {
        return MakeError(ErrorCode::kUsage,
                         "--data-weights {}: expected {} numbers of 0 or more, one for each --data",
                         fmt::join(weights, ","), sizes.size());
    }
    const uint64_t all = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    const std::vector<uint64_t> shares = SharesOf(all, weights, sum);
    Mixture made;
    made.shuffle_ = shuffle;
    made.seed_ = seed;
    uint64_t first = 0, begin = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
        if (shares[i] > 0 && sizes[i] == 0) {
            return MakeError(ErrorCode::kUsage,
                             "--data-weights {}: source {} has no record to train on",
                             fmt::join(weights, ","), i + 1);
        }
        made.sources_.push_back({first, sizes[i], begin, shares[i]});
        first += sizes[i];
        begin += shares[i];
    }
    return made;
}

uint64_t Mixture::operator()(uint64_t epoch, uint64_t draw) const {
    const auto source = std::ranges::find_if(
        sources_, [&](const Source& each) { return draw < each.begin + each.draws; });
    WEFT_CHECK(source != sources_.end());
    const uint64_t number = epoch * source->draws + draw - source->begin;
    const uint64_t pass = number / source->size, at = number % source->size;
    if (!shuffle_) return source->first + at;
    const Permutation order(source->size, Mix(seed_ ^ Mix(source->first ^ Mix(~pass))));
    return source->first + order(at);
}

uint64_t Mixture::Fingerprint() const {
    uint64_t mixed = 0;
    for (const Source& source : sources_) {
        mixed = Mix(mixed ^ source.size);
        mixed = Mix(mixed ^ source.draws);
    }
    return mixed;
}

}  // namespace weft::train
