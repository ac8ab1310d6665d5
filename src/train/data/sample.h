// What training reads of one record: its tokens, and which of them are learned. The loss of a token
// counts where the token is to be predicted, so that of the first one never counts.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::train {

struct Sample {
    std::vector<int32_t> tokens;  // at least two
    std::vector<uint8_t> loss;    // one a token: 1 if the token is learned
};

}  // namespace weft::train
