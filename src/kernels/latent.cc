#include "kernels/latent.h"

#include <algorithm>
#include <cstring>

#include "kernels/reference/ops.h"

namespace weft::kernels {

// Space for queries, a tile of keys, their scores, sums, and the state of each softmax
// (vector/latent.cc). Rows are padded to whole vectors.
int64_t LatentScratch(int64_t rank, int64_t rope) {
    const int64_t cols = (rank + rope + 15) / 16 * 16, sums = (rank + 15) / 16 * 16;
    const int64_t floats = (kLatentQueries + kLatentTile) * cols + kLatentQueries * kLatentTile +
                           kLatentQueries * sums + 2 * kLatentQueries;
    return (floats + 15) / 16 * 16;
}

void LatentWrite(const LatentWriteArgs& args, int part, int parts) {
    WEFT_CHECK(args.rank + args.rope <= kMostLatentColumns);
    float row[kMostLatentColumns];
    for (const Sequence& sequence : args.sequences) {
        const Range share = Share(sequence.row_count, 1, part, parts);
        for (int64_t i = share.begin; i < share.end; ++i) {
            const int64_t at = sequence.row_begin + i, position = sequence.position + i;
            if (!args.windows.Ends(position)) continue;
            std::copy_n(args.latent + at * args.rank, args.rank, row);
            std::copy_n(args.key + at * args.rope, args.rope, row + args.rank);
            const int64_t slot = position / args.windows.row_positions;
            const auto page = static_cast<size_t>(slot / args.cache.page_tokens);
            reference::WriteValue(args.cache, sequence.pages[page], 0,
                                  slot % args.cache.page_tokens, row);
        }
    }
}

void PickColumns(const PickColumnsArgs& args, int part, int parts) {
    const Range share = Share(args.rows * args.heads, 1, part, parts);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        std::memcpy(args.y + unit * args.size, args.x + unit * args.head_cols + args.begin,
                    static_cast<size_t>(args.size) * sizeof(float));
    }
}

}  // namespace weft::kernels
