#include "kernels/attention_split.h"

#include <algorithm>

namespace weft::kernels {
namespace {

// The fixed cost of a query, in keys.
constexpr int64_t kQueryCost = 32;

// The cost of the first `rows` rows of a sequence, per head. Beyond the window (0: none), a row
// sees as many keys as the row before; with `ahead`, all rows do.
int64_t RowsCost(const AttentionArgs& args, const Sequence& sequence, int64_t rows) {
    const int64_t window = args.window;
    if (args.ahead) {
        const int64_t keys = int64_t{sequence.position} + sequence.row_count;
        return rows * (kQueryCost + (window == 0 ? keys : std::min(keys, 2 * window - 1)));
    }
    const int64_t most = window == 0 ? rows : window - sequence.position;
    const int64_t growing = std::clamp<int64_t>(most, 0, rows);
    return rows * kQueryCost + growing * (sequence.position + 1) + growing * (growing - 1) / 2 +
           (rows - growing) * window;
}

// The first query whose predecessors cost at least `cost`; the number of queries if no query
// reaches `cost`.
int64_t QueryAt(const AttentionArgs& args, const Sequence& sequence, int64_t heads, int64_t cost) {
    int64_t low = 0, high = sequence.row_count;  // the row: RowsCost(low) * heads <= cost
    if (cost <= 0) return 0;
    if (cost >= RowsCost(args, sequence, high) * heads) return high * heads;
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (RowsCost(args, sequence, middle) * heads <= cost ? low : high) = middle;
    }
    const int64_t before = RowsCost(args, sequence, low);
    const int64_t row_cost = RowsCost(args, sequence, low + 1) - before;
    const int64_t left = cost - before * heads;
    return low * heads + (left + row_cost - 1) / row_cost;
}

}  // namespace

AttentionShare::AttentionShare(const AttentionArgs& args, int part, int parts) : args_(args) {
    int64_t total = 0;
    for (const Sequence& sequence : args.sequences) {
        total += RowsCost(args, sequence, sequence.row_count) * args.heads;
    }
    begin_cost_ = total * part / parts;
    end_cost_ = total * (part + 1) / parts;
}

int64_t AttentionShare::KvHeads() const {
    return (args_.first_head + args_.heads - 1) / args_.group - args_.first_head / args_.group + 1;
}

bool AttentionShare::Next(AttentionRun* run) {
    const int64_t first_group = args_.first_head / args_.group;
    while (sequence_ < args_.sequences.size() && passed_cost_ < end_cost_) {
        const Sequence& sequence = args_.sequences[sequence_];
        const int64_t group = first_group + kv_head_;
        const int64_t head = std::max(group * args_.group, args_.first_head) - args_.first_head;
        const int64_t head_end =
            std::min((group + 1) * args_.group - args_.first_head, args_.heads);
        const int64_t heads = head_end - head;
        *run = {&sequence,
                group - args_.first_kv_head,
                head,
                heads,
                QueryAt(args_, sequence, heads, begin_cost_ - passed_cost_),
                QueryAt(args_, sequence, heads, end_cost_ - passed_cost_)};
        passed_cost_ += RowsCost(args_, sequence, sequence.row_count) * heads;
        if (++kv_head_ == KvHeads()) {
            kv_head_ = 0;
            ++sequence_;
        }
        if (run->begin < run->end) return true;
    }
    return false;
}

int64_t AttentionScratchFloats(int64_t head_dim) {
    const int64_t padded = (head_dim + 15) / 16 * 16;
    return kBlockQueries * (2 * padded + kTileKeys + 16) + 2 * kTileKeys * padded;
}

}  // namespace weft::kernels
