// Pooling: one vector for a whole text, from the hidden states of its tokens after the final norm.
//
// Rows come in order, in chunks of any size; the vector does not depend on how they were cut. A
// text that is computed again (its pages were taken, a rank was lost) begins at position 0, and
// then the vector does, too.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::engine {

enum class Pooling {
    kLast,  // the last token's
    kMean,  // the mean of all
    kCls,   // the first token's
};
const char* PoolingName(Pooling pooling);  // "last", "mean", "cls"
std::optional<Pooling> PoolingOfName(std::string_view name);

class Pooler {
  public:
    // tokens: of the whole text; columns: of a hidden state.
    Pooler(Pooling pooling, int64_t tokens, int64_t columns);
    // rows: [count, columns], the first at `position`.
    void Add(std::span<const float> rows, int64_t position);
    // The vector, of length 1. kCorrupt: it has no direction (zeros, or numbers that are none).
    Result<std::vector<float>> Finish() const;

  private:
    Pooling pooling_;
    int64_t tokens_;
    size_t columns_;
    std::vector<double> sum_;
};

}  // namespace weft::engine
