// RowRequest: which part of a row of logits rank 0 requests from another pipeline stage. RowAnswer:
// the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/top.h"

namespace weft::engine {

// The sampling options whose rules need all logits of a row, and the random number for the draw.
struct RowChain {
    float temperature = 1, top_p = 1, min_p = 0;
    uint64_t random = 0;  // 53 bits
    bool operator==(const RowChain&) const = default;
};

struct RowRequest {
    enum class Kind : int32_t { kAll, kBest, kToken } kind = Kind::kAll;
    int32_t top = 0;  // kBest: number of largest logits
    RowChain chain;   // kToken: options with which the stage draws a token
    bool operator==(const RowRequest&) const = default;
};

struct RowAnswer {
    RowRequest::Kind kind = RowRequest::Kind::kAll;
    size_t columns = 0;
    // kBest: the largest logits. kToken: the drawn token (-1 if a logit is not finite), with the
    // row's largest logit.
    std::vector<backend::Candidate> best;
};

}  // namespace weft::engine
