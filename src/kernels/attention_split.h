// How attention is shared out over the parts of a team, and the scratch memory of one part.
//
// The queries of a step are taken in one order: by sequence, KV head, row, head. A query costs as
// many keys as it sees, and each part gets a run of that order of equal cost: causal rows balance,
// and a single row is shared out by its heads. Pure functions of the arguments; nothing allocates.
#pragma once

#include "kernels/args.h"

namespace weft::kernels {

// Queries [begin, end) of one sequence and KV head: query i is row i / heads, head
// first_head + i % heads (of this rank's heads).
struct AttentionRun {
    const Sequence* sequence = nullptr;
    int64_t kv_head = 0, first_head = 0, heads = 0;
    int64_t begin = 0, end = 0;
};

// Walks over the runs of one part.
class AttentionShare {
  public:
    AttentionShare(const AttentionArgs& args, int part, int parts);
    // The next run that is not empty; false after the last.
    bool Next(AttentionRun* run);

  private:
    int64_t KvHeads() const;

    const AttentionArgs& args_;
    int64_t begin_cost_ = 0, end_cost_ = 0;  // of this part
    int64_t passed_cost_ = 0;                // of the runs before the next one
    size_t sequence_ = 0;
    int64_t kv_head_ = 0;
};

inline constexpr int64_t kTileKeys = kSlotGroup;  // that one step of the online softmax takes in
inline constexpr int64_t kBlockQueries = 96;      // that share a tile, or a walk over the pages

// Floats of scratch that tiled attention needs for a part.
int64_t AttentionScratchFloats(int64_t head_dim);

}  // namespace weft::kernels
