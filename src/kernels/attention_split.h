// Divides attention among the parts of a team, and gives the size of a part's scratch memory.
//
// The queries of a step are ordered by sequence, KV head, row and head. The cost of a query is the
// number of keys that it sees, and each part gets consecutive queries of equal total cost. So parts
// are balanced although later rows see more keys, and a single row is divided by heads. The result
// depends only on the arguments. Nothing is allocated.
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

// Iterates over the runs of one part.
class AttentionShare {
  public:
    AttentionShare(const AttentionArgs& args, int part, int parts);
    // Gets the next non-empty run. Returns false after the last one.
    bool Next(AttentionRun* run);

  private:
    int64_t KvHeads() const;

    const AttentionArgs& args_;
    int64_t begin_cost_ = 0, end_cost_ = 0;  // costs at which this part begins and ends
    int64_t passed_cost_ = 0;                // total cost of the runs so far
    size_t sequence_ = 0;
    int64_t kv_head_ = 0;
};

inline constexpr int64_t kTileKeys = kSlotGroup;  // keys per step of the online softmax
inline constexpr int64_t kBlockQueries = 96;  // queries that are computed together, with one pass
                                              // over the keys

// Floats of scratch per part for tiled attention.
int64_t AttentionScratchFloats(int64_t head_dim);

}  // namespace weft::kernels
