// Pooling: one vector for a whole text, from its tokens' hidden states after the final norm.
//
// Rows come in order, in chunks of any size; the chunk sizes do not change the vector. When a text
// is recomputed (after preemption or the loss of a rank), its rows start at position 0 again, which
// resets the vector.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "model_files/embedding_head.h"

namespace weft::engine {

using model_files::Pooling;

class Pooler {
  public:
    // tokens: length of the whole text; columns: size of a hidden state; first: the poolings leave
    // out the states of earlier tokens (a prompt), if the text has others.
    Pooler(const std::vector<Pooling>& poolings, int64_t tokens, int64_t columns,
           int64_t first = 0);
    // rows: [count, columns]; position: the position of the first row in the text.
    void Add(std::span<const float> rows, int64_t position);
    // Returns the results of all poolings, one after the other, in the order given. kCorrupt: they
    // are all zero, or some are not finite.
    Result<std::vector<float>> Finish() const;

  private:
    struct Part {
        Pooling pooling;
        std::vector<double> columns;
    };
    int64_t tokens_, first_;
    size_t columns_;
    std::vector<Part> parts_;
};

}  // namespace weft::engine
