#include "program/context_parallel.h"

#include <string>
#include <utility>
#include <vector>

namespace weft::program {
namespace {

// The heads of an attention op that one rank computes, and the KV heads that these read.
struct HeadRanges {
    ColumnRange heads, kv_heads;
};

HeadRanges HeadsOf(const Attention& a, int64_t rank, int64_t ranks) {
    const int64_t begin = a.heads * rank / ranks, end = a.heads * (rank + 1) / ranks;
    const int64_t kv_begin = (a.first_head + begin) / a.group - a.first_kv_head;
    const int64_t kv_end = (a.first_head + end - 1) / a.group - a.first_kv_head + 1;
    return {{begin, end - begin}, {kv_begin, kv_end - kv_begin}};
}

class Divider {
  public:
    Divider(Program forward, int rank, int ranks)
        : program_(std::move(forward)),
          ops_(std::exchange(program_.ops, {})),
          rank_(rank),
          ranks_(ranks) {}

    Result<Program> Run() {
        for (Value& value : program_.values) {
            if (value.shape.rank > 0 && value.shape[0] == kTokens) {
                value.shape.dims[0] = RowShare(ranks_);
            }
        }
        for (Op& op : ops_) {
            if (op.kind() == OpKind::kAttention) {
                WEFT_TRY(Divide(op));
            } else {
                WEFT_TRY(CheckRows(op));
                program_.ops.push_back(std::move(op));
            }
        }
        WEFT_TRY(CheckShapes(program_));
        return std::move(program_);
    }

  private:
    // Whether the op computes each row by itself, or has an attribute with its rows.
    static Status CheckRows(const Op& op) {
        const bool own = op.Is(Trait::kRowWise) || op.kind() == OpKind::kSelectRows ||
                         op.kind() == OpKind::kLinearCrossEntropy || op.kind() == OpKind::kZero;
        if (own) return {};
        const bool balance = op.kind() == OpKind::kRouterLoad || op.kind() == OpKind::kLoadBalance;
        return MakeError(
            ErrorCode::kUnsupported, "--cp: {}",
            balance ? "the load-balancing loss of experts counts all rows of a micro-batch, and "
                      "each rank has only its own. Use --router-aux-loss 0"
                    : fmt::format("this model's {} needs all rows of a sequence, and only "
                                  "attention shares them out. Train it without --cp",
                                  OpName(op.kind())));
    }

    Status Divide(const Op& op) {
        const auto& a = op.as<Attention>();
        if (a.heads < ranks_) {
            return MakeError(ErrorCode::kUnsupported,
                             "--cp {}: ranks divide the heads of attention, and a layer has {}{}. "
                             "Use --cp {} or less",
                             ranks_, a.heads, a.first_head > 0 ? " on a tensor rank" : "", a.heads);
        }
        if (a.sinks || a.cached(op.inputs.size()) || a.block != 0) {
            return MakeError(ErrorCode::kUnsupported,
                             "--cp: attention with {} cannot be divided yet. Train this model "
                             "without --cp",
                             a.sinks ? "sinks" : "a cache or chosen blocks");
        }
        std::vector<ColumnRange> heads, kv_heads;
        for (int rank = 0; rank < ranks_; ++rank) {
            const HeadRanges ranges = HeadsOf(a, rank, ranks_);
            heads.push_back(ranges.heads);
            kv_heads.push_back(ranges.kv_heads);
        }
        const HeadRanges own = HeadsOf(a, rank_, ranks_);
        Attention mine = a;
        mine.heads = own.heads.count;
        mine.kv_heads = own.kv_heads.count;
        mine.first_head += own.heads.begin;
        mine.first_kv_head += own.kv_heads.begin;
        if (!a.slopes.empty()) {
            const auto first = a.slopes.begin() + own.heads.begin;
            mine.slopes.assign(first, first + own.heads.count);
        }
        const ValueId q = ToColumns(op.inputs[0], heads, a.head_dim),
                      k = ToColumns(op.inputs[1], kv_heads, a.head_dim),
                      v = ToColumns(op.inputs[2], kv_heads, a.ValueDim());
        const ValueId result = op.outputs[0];
        const ValueId out = program_.Emit(std::move(mine), {q, k, v}, Name(result) + ".heads",
                                          {kTokens, own.heads.count * a.ValueDim()});
        program_.ops.push_back(Op{AllToAll{Scaled(heads, a.ValueDim()), false}, {out}, {result}});
        return {};
    }

    const std::string& Name(ValueId id) const { return program_.value(id).name; }
    static std::vector<ColumnRange> Scaled(std::vector<ColumnRange> heads, int64_t columns) {
        for (ColumnRange& range : heads) {
            range.begin *= columns;
            range.count *= columns;
        }
        return heads;
    }
    // The columns of this rank's heads, in all rows.
    ValueId ToColumns(ValueId x, const std::vector<ColumnRange>& heads, int64_t columns) {
        AllToAll divide{Scaled(heads, columns), true};
        const int64_t own = divide.parts[static_cast<size_t>(rank_)].count;
        return program_.Emit(std::move(divide), {x},
                             fmt::format("{}.heads.{}", Name(x), program_.ops.size()),
                             {kTokens, own});
    }

    Program program_;
    std::vector<Op> ops_;
    const int rank_, ranks_;
};

}  // namespace

Result<Program> ApplyContextParallel(Program forward, int rank, int ranks) {
    if (ranks == 1) return forward;
    return Divider(std::move(forward), rank, ranks).Run();
}

}  // namespace weft::program
