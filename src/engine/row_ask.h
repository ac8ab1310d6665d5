// What rank 0 needs of a row of logits that another pipeline stage makes, and the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/top.h"

namespace weft::engine {

// The part of a sampling chain that needs all logits of a row, and the random number with which it
// draws the token.
struct RowChain {
    float temperature = 1, top_p = 1, min_p = 0;
    uint64_t random = 0;  // 53 bits
    bool operator==(const RowChain&) const = default;
};

struct RowAsk {
    enum class Kind : int32_t { kAll, kBest, kToken } kind = Kind::kAll;
    int32_t top = 0;  // kBest: the best so many logits
    RowChain chain;   // kToken: the token that this chain draws
    bool operator==(const RowAsk&) const = default;
};

struct RowAnswer {
    RowAsk::Kind kind = RowAsk::Kind::kAll;
    size_t columns = 0;
    // kToken: the token with the largest logit of the row; -1 where that is not finite.
    std::vector<backend::Candidate> best;
};

}  // namespace weft::engine
