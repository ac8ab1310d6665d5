// Pooling: one vector for a whole text, from its tokens' hidden states after the final norm.
//
// Rows come in order, in chunks of any size; the chunk sizes do not change the vector. When a text
// is recomputed (after preemption or the loss of a rank), its rows start at position 0 again, which
// resets the vector.
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
    kLast,  // the last token's state
    kMean,  // the mean over all tokens
    kCls,   // the first token's state
};
const char* PoolingName(Pooling pooling);  // "last", "mean", "cls"
std::optional<Pooling> PoolingOfName(std::string_view name);

class Pooler {
  public:
    // tokens: length of the whole text; columns: size of a hidden state.
    Pooler(Pooling pooling, int64_t tokens, int64_t columns);
    // rows: [count, columns]; position: that of the first row in the text.
    void Add(std::span<const float> rows, int64_t position);
    // Returns the vector, normalized to length 1. kCorrupt: it is zero or not finite.
    Result<std::vector<float>> Finish() const;

  private:
    Pooling pooling_;
    int64_t tokens_;
    size_t columns_;
    std::vector<double> sum_;
};

}  // namespace weft::engine
