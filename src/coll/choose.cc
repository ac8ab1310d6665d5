#include "coll/choose.h"

namespace weft::coll {
namespace {

// Between two ranks two-shot moves half the bytes, for one more exchange of flags.
constexpr size_t kOneShotShm = size_t{32} << 10;
constexpr size_t kOneShotTcp = size_t{64} << 10;
// From here on every rank talks to its neighbours only.
constexpr size_t kRingBytes = size_t{4} << 20;
constexpr int kRingRanks = 4;

}  // namespace

Algorithm ChooseAllReduce(int ranks, size_t bytes, bool over_tcp) {
    const size_t others = static_cast<size_t>(ranks - 1);
    if (bytes * others <= (over_tcp ? kOneShotTcp : kOneShotShm)) return Algorithm::kOneShot;
    if (over_tcp && ranks >= kRingRanks && bytes >= kRingBytes) return Algorithm::kRing;
    return Algorithm::kTwoShot;
}

}  // namespace weft::coll
