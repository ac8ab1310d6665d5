// The liveness plan: activations share one arena; a value's bytes are free after its last use.
//
// Greedy by size (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net
// inference"): the largest value first, each at the lowest offset that no value alive at the same
// time uses.
#include <algorithm>
#include <bit>
#include <limits>

#include "program/arena.h"

namespace weft::program {
namespace {

constexpr int64_t kAlign = 64;

struct Life {
    ValueId id = kNoValue;
    int64_t first = std::numeric_limits<int64_t>::max();
    int64_t last = -1;
    int64_t bytes = 0;
    int64_t offset = -1;
};

// For each op, the last op of the segment after its own; a segment ends with a sum.
std::vector<int64_t> EndsOfNext(const Program& program) {
    const int64_t count = static_cast<int64_t>(program.ops.size());
    std::vector<int64_t> ends(program.ops.size());
    int64_t end = count, end_of_next = count;
    for (int64_t op = count - 1; op >= 0; --op) {
        if (program.ops[static_cast<size_t>(op)].kind() == OpKind::kAllReduce) {
            end_of_next = end;
            end = op;
        }
        ends[static_cast<size_t>(op)] = end_of_next;
    }
    return ends;
}

std::vector<Life> Lives(const Program& program, int64_t tokens, int64_t outputs,
                        const std::vector<ValueId>& keep, bool halves) {
    std::vector<Life> lives(program.values.size());
    const auto touch = [&](ValueId id, size_t op) {
        Life& life = lives[static_cast<size_t>(program.HomeOf(id))];
        life.first = std::min(life.first, static_cast<int64_t>(op));
        life.last = std::max(life.last, static_cast<int64_t>(op));
    };
    for (size_t op = 0; op < program.ops.size(); ++op) {
        for (ValueId id : program.ops[op].inputs) touch(id, op);
        for (ValueId id : program.ops[op].outputs) touch(id, op);
    }
    if (halves) {
        const std::vector<int64_t> ends = EndsOfNext(program);
        for (Life& life : lives) {
            if (life.last >= 0) life.last = ends[static_cast<size_t>(life.last)];
        }
    }
    for (ValueId id : keep) touch(id, program.ops.size());
    for (size_t i = 0; i < lives.size(); ++i) {
        lives[i].id = static_cast<ValueId>(i);
        const Value& value = program.values[i];
        const int64_t elements = value.shape.Elements(tokens, outputs);
        const int64_t bytes = RowBytes(value.dtype, elements);
        lives[i].bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    }
    std::erase_if(lives, [&](const Life& life) {
        return program.value(life.id).storage != Storage::kActivation || life.last < 0;
    });
    return lives;
}

// The input of a zero_reduce_scatter lives until the next one (or the end).
void Linger(const Program& program, const ModelChunk& chunk, std::vector<Life>& lives) {
    ValueId last = kNoValue;
    for (size_t op = chunk.begin; op < chunk.end; ++op) {
        if (program.ops[op].kind() != OpKind::kZeroReduceScatter) continue;
        const auto life = std::ranges::find(lives, last, &Life::id);
        if (life != lives.end()) life->last = static_cast<int64_t>(op);
        last = program.HomeOf(program.ops[op].inputs[0]);
    }
}

struct Bytes {
    int64_t begin = 0, end = 0;
};

// Disjoint ranges, ascending.
using ByteRanges = std::vector<Bytes>;

void Insert(ByteRanges& ranges, Bytes added) {
    const auto begin = std::ranges::lower_bound(ranges, added.begin, {}, &Bytes::end);
    auto end = begin;
    for (; end != ranges.end() && end->begin <= added.end; ++end) {
        added = {std::min(added.begin, end->begin), std::max(added.end, end->end)};
    }
    ranges.insert(ranges.erase(begin, end), added);
}

// The bytes that values use, by op, in a segment tree: node i has children 2i and 2i + 1. So a
// program of n ops is planned in about n log n steps, although some values live for all of them.
class UsedBytes {
  public:
    explicit UsedBytes(int64_t ops)
        : leaves_(std::bit_ceil(static_cast<size_t>(ops))), nodes_(2 * leaves_) {}

    void Add(const Life& life) {
        if (life.bytes == 0) return;
        const Bytes bytes{life.offset, life.offset + life.bytes};
        ForCover(life, [&](size_t node) {
            Insert(nodes_[node].throughout, bytes);
            Insert(nodes_[node].sometimes, bytes);
        });
        ForPaths(life, [&](size_t node) { Insert(nodes_[node].sometimes, bytes); });
    }

    // All bytes that are in use at some op of the life, ascending by their begin.
    const std::vector<Bytes>& During(const Life& life) {
        found_.clear();
        const auto take = [&](const ByteRanges& ranges) {
            found_.insert(found_.end(), ranges.begin(), ranges.end());
        };
        ForCover(life, [&](size_t node) { take(nodes_[node].sometimes); });
        ForPaths(life, [&](size_t node) { take(nodes_[node].throughout); });
        std::ranges::sort(found_, {}, &Bytes::begin);
        return found_;
    }

  private:
    struct Node {
        ByteRanges throughout, sometimes;  // at all ops, or at some op, below the node
    };

    // The highest nodes whose ops are all in the life.
    void ForCover(const Life& life, const auto& visit) const {
        size_t begin = leaves_ + static_cast<size_t>(life.first);
        size_t end = leaves_ + static_cast<size_t>(life.last) + 1;
        for (; begin < end; begin /= 2, end /= 2) {
            if (begin % 2 == 1) visit(begin++);
            if (end % 2 == 1) visit(--end);
        }
    }
    // The nodes above the first and the last op.
    void ForPaths(const Life& life, const auto& visit) const {
        size_t first = leaves_ + static_cast<size_t>(life.first);
        size_t last = leaves_ + static_cast<size_t>(life.last);
        for (; first > 0; first /= 2, last /= 2) {
            visit(first);
            if (last != first) visit(last);
        }
    }

    const size_t leaves_;
    std::vector<Node> nodes_;
    std::vector<Bytes> found_;
};

// The lowest offset of `bytes` bytes outside of `used`.
int64_t LowestOffset(int64_t bytes, const std::vector<Bytes>& used, int64_t block_bytes) {
    int64_t offset = 0;
    for (const Bytes& other : used) {
        if (offset + bytes <= other.begin) break;
        offset = WithinBlock(std::max(offset, other.end), bytes, block_bytes);
    }
    return offset;
}

ArenaPlan Plan(const Program& program, std::vector<Life> lives, int64_t block_bytes = 0) {
    std::ranges::stable_sort(lives, std::greater<>{}, &Life::bytes);
    ArenaPlan plan;
    plan.offsets.assign(program.values.size(), -1);
    UsedBytes used(std::ssize(program.ops) + 1);  // (kept values live after the last op)
    for (Life& life : lives) {
        life.offset = LowestOffset(life.bytes, used.During(life), block_bytes);
        used.Add(life);
        plan.offsets[static_cast<size_t>(life.id)] = life.offset;
        plan.size_bytes = std::max(plan.size_bytes, life.offset + life.bytes);
    }
    return plan;
}

}  // namespace

int64_t WithinBlock(int64_t offset, int64_t bytes, int64_t block_bytes) {
    if (block_bytes == 0) return offset;
    const int64_t used = offset % block_bytes;
    return used == 0 || used + bytes <= block_bytes ? offset : offset - used + block_bytes;
}

ArenaPlan PlanArena(const Program& program, int64_t tokens, int64_t outputs,
                    const std::vector<ValueId>& keep) {
    return Plan(program, Lives(program, tokens, outputs, keep, false));
}

ArenaPlan PlanArenaInHalves(const Program& program, int64_t tokens, int64_t outputs,
                            const std::vector<ValueId>& keep) {
    return Plan(program, Lives(program, tokens, outputs, keep, true));
}

// (In the list, values of two chunks never live at the same time, so they share both plans.)
TrainingArenaPlan PlanTrainingArena(const ChunkedProgram& all, int64_t tokens, int64_t outputs,
                                    const TrainingArenaOptions& options) {
    const Program& program = all.program;
    std::vector<Life> brief = Lives(program, tokens, outputs, {}, false);
    // Values that the host reads after a part has run live to the part's end.
    const auto read_after = [&](ValueId id, size_t end) {
        const auto life = std::ranges::find(brief, id, &Life::id);
        if (life != brief.end()) life->last = std::max(life->last, static_cast<int64_t>(end) - 1);
    };
    for (const ModelChunk& chunk : all.chunks) {
        read_after(chunk.side_output, chunk.predict_begin);  // evaluate may also have run
        read_after(chunk.loss.evaluated, chunk.predict_begin);
        read_after(chunk.loss.predicted, chunk.backward_begin);
        read_after(chunk.loss.losses, chunk.end);
        read_after(chunk.loss.hits, chunk.end);
        read_after(chunk.loss.evaluated_hits, chunk.predict_begin);
        if (options.overlap) Linger(program, chunk, brief);
    }
    const auto kept_begin = std::stable_partition(brief.begin(), brief.end(), [&](const Life& l) {
        return options.apart && std::ranges::none_of(all.chunks, [&](const ModelChunk& chunk) {
                   const auto turn = static_cast<int64_t>(chunk.backward_begin);
                   return l.first < turn && l.last >= turn;
               });
    });
    std::vector<Life> kept(kept_begin, brief.end());
    brief.erase(kept_begin, brief.end());
    return {Plan(program, std::move(kept), options.block_bytes),
            Plan(program, std::move(brief), options.block_bytes)};
}

}  // namespace weft::program
