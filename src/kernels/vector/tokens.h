// The quantized activations of a tile of tokens, the right operand of blocks.h and similar files.
#pragma once

#include "kernels/vector/set.h"
#include "kernels/weight_tiles.h"

namespace weft::kernels::WEFT_SET {

using weight_tiles::ActivationBlock;

// One activation block of each token: x[t] is token t's; x + n is n blocks later.
struct Tokens {
    const ActivationBlock* first = nullptr;
    int64_t stride = 0;  // in blocks
    [[gnu::always_inline]] const ActivationBlock& operator[](int64_t t) const {
        return first[t * stride];
    }
    [[gnu::always_inline]] Tokens operator+(int64_t blocks) const {
        return {first + blocks, stride};
    }
};

// The first blocks of the tokens from `token` on.
WEFT_INLINE Tokens TokensFrom(const MatMulArgs& args, int64_t token) {
    const int64_t stride = weight_tiles::QuantizedBlocks(args.weight.cols);
    return {reinterpret_cast<const ActivationBlock*>(args.quantized) + token * stride, stride};
}

}  // namespace weft::kernels::WEFT_SET
