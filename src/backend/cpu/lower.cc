#include "backend/cpu/lower.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace weft::backend {
namespace {

using program::OpKind;
using program::ValueId;

constexpr int64_t kAlign = 64;

class Lowerer {
  public:
    Lowerer(const program::Program& program, const CompileOptions& options,
            const kernels::Kernels& kernels, int threads, Buffers& buffers)
        : program_(program),
          options_(options),
          kernels_(kernels),
          threads_(threads),
          buffers_(buffers) {}

    Result<CallLists> Run() {
        WEFT_TRY(AllocateScratch());
        CallLists lists;
        WEFT_ASSIGN(lists.plain, RunAll());
        adapts_ = std::ranges::any_of(program_.ops,
                                      [](const auto& op) { return op.kind() == OpKind::kAdapt; });
        if (!adapts_) return lists;
        WEFT_ASSIGN(lists.adapted, RunAll());
        return lists;
    }

  private:
    Result<std::vector<Call>> RunAll() {
        std::ranges::fill(prepared_value_, program::kNoValue);
        planned_ids_ = program::kNoValue;
        tables_made_.clear();
        for (size_t i = 0; i < program_.ops.size(); ++i) {
            op_ = static_cast<int32_t>(i);
            if (program_.ops[i].kind() != OpKind::kAdapt) TakeUps();
            WEFT_TRY(LowerOp(program_.ops[i]));
        }
        TakeUps();
        PlaceBarriers(calls_, options_, kernels_);
        PlaceTails(calls_);
        return std::exchange(calls_, {});
    }

    // What of the scratch memory the ops need, at the most.
    struct Needs {
        int64_t prepared = 0;   // bytes of one buffer of prepared activations
        int64_t attention = 0;  // floats a thread
        int64_t rotary = 0;
        int64_t slots = 0, experts = 0, group = 0, wide = 0;  // of mixtures of experts
        int64_t adapts = 0, adapter_rank = 0, adapted = 0;    // Adapt ops that follow one another
    };

    Needs NeedsOf() {
        Needs needs;
        const int64_t rows = std::max(options_.max_tokens, options_.max_outputs);
        const auto raise = [](int64_t& most, int64_t value) { most = std::max(most, value); };
        const auto prepares = [&](const program::Op& op, int64_t times) {
            const int64_t cols = Cols(WeightOf(op));
            if (Prepares(op)) raise(needs.prepared, rows * times * kernels_.prepared_bytes(cols));
        };
        int64_t adapts = 0;
        for (const program::Op& op : program_.ops) {
            adapts = op.kind() == OpKind::kAdapt ? adapts + 1 : 0;
            raise(needs.adapts, adapts);
            if (op.kind() == OpKind::kAdapt) {
                raise(needs.adapter_rank, AdapterStride(op));
                if (IsSegmentedHere(op)) {
                    raise(needs.adapted, rows * Cols(op.outputs[0]));
                    segmented_.insert(op.outputs[0]);
                }
            } else if (op.kind() == OpKind::kMatMul) {
                prepares(op, 1);
            } else if (op.kind() == OpKind::kAttention) {
                const auto& a = op.as<program::Attention>();
                raise(needs.attention, kernels_.attention_scratch(a.head_dim, a.group));
            } else if (op.kind() == OpKind::kLatentAttention) {
                raise(needs.attention,
                      kernels::LatentScratch(Cols(op.inputs[2]), Cols(op.inputs[3])));
            } else if (op.kind() == OpKind::kRope) {
                const auto& a = op.as<program::Rope>();
                if (tables_.emplace(TableKey(a), nullptr).second) needs.rotary += a.rotary_dim;
            } else if (op.kind() == OpKind::kExpertMatMul || op.kind() == OpKind::kExpertSum) {
                const program::Shape& weight = program_.value(WeightOf(op)).shape;
                const int64_t used = Cols(op.inputs[1]);
                prepares(op, IsSlots(op.inputs[0]) ? used : 1);
                raise(needs.slots, rows * used);
                raise(needs.experts, weight[0]);
                raise(needs.group, kernels::GroupScratchBytes(kernels_, weight[2]));
                if (op.kind() == OpKind::kExpertSum) raise(needs.wide, rows * weight[1]);
            } else if (op.kind() == OpKind::kHeadMatMul) {
                const program::Shape& weight = program_.value(WeightOf(op)).shape;
                prepares(op, weight[0]);
                raise(needs.group, kernels::GroupScratchBytes(kernels_, weight[2]));
            }
        }
        return needs;
    }

    // One table a distinct set of RoPE frequencies, two buffers of prepared activations (so that
    // the next one does not wait for the readers of the last), attention and expert scratch a
    // thread, and the plan of a mixture of experts.
    Status AllocateScratch() {
        const Needs needs = NeedsOf();
        int64_t total = 0;
        const auto take = [&](int64_t bytes) {
            const int64_t at = total;
            total += Align(bytes);
            return at;
        };
        const int64_t prepared[] = {take(needs.prepared), take(needs.prepared)};
        scratch_floats_ = Align(needs.attention * 4) / 4;
        const int64_t attention = take(scratch_floats_ * 4 * threads_);
        group_scratch_bytes_ = Align(needs.group);
        const int64_t group = take(group_scratch_bytes_ * threads_);
        const int64_t begin = take((needs.experts + 1) * 4), slots = take(needs.slots * 4);
        const int64_t wide = take(needs.wide * 8);
        const int64_t rows = std::max(options_.max_tokens, options_.max_outputs);
        adapter_u_bytes_ = Align(rows * needs.adapter_rank * 8);
        const int64_t adapter_u = take(adapter_u_bytes_ * needs.adapts);
        const int64_t adapted = take(needs.adapted * 8);
        std::vector<int64_t> tables;
        for (size_t i = 0; i < tables_.size(); ++i) {
            tables.push_back(take(needs.rotary * options_.max_tokens * 4));
        }
        WEFT_ASSIGN(buffers_.scratch, Memory::Allocate(total, "scratch"));
        std::byte* data = buffers_.scratch.data();
        for (size_t i : {0, 1}) prepared_[i] = data + prepared[i];
        attention_scratch_ = reinterpret_cast<float*>(data + attention);
        group_scratch_ = data + group;
        plan_.begin = reinterpret_cast<int32_t*>(data + begin);
        plan_.slots = reinterpret_cast<int32_t*>(data + slots);
        wide_ = reinterpret_cast<double*>(data + wide);
        adapter_u_ = data + adapter_u;
        adapted_ = reinterpret_cast<double*>(data + adapted);
        size_t next = 0;
        for (auto& [frequencies, table] : tables_) {
            table = reinterpret_cast<float*>(data + tables[next++]);
        }
        return {};
    }

    // Ropes with the same angles and magnitude share a table.
    using Angles = std::pair<std::vector<float>, float>;
    static Angles TableKey(const program::Rope& a) { return {a.inverse_frequency, a.magnitude}; }

    static int64_t Align(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

    kernels::Prepared FormFor(const program::Op& op) const {
        return kernels_.prepared_as(program_.value(WeightOf(op)).dtype);
    }
    bool Prepares(const program::Op& op) const { return FormFor(op) != kernels::Prepared::kNone; }
    static ValueId WeightOf(const program::Op& op) {
        if (op.kind() == OpKind::kExpertSum) return op.inputs[3];
        return op.inputs[op.kind() == OpKind::kExpertMatMul ? 2 : 1];
    }
    // A value with a row for each token and expert.
    bool IsSlots(ValueId id) const { return program_.value(id).shape.rank == 3; }

    // No default: a new op does not compile until it is lowered or refused here.
    Status LowerOp(const program::Op& op) {
        switch (op.kind()) {
            case OpKind::kEmbedding: return LowerEmbedding(op);
            case OpKind::kRmsNorm: return LowerRmsNorm(op);
            case OpKind::kSumSquares: return LowerSumSquares(op);
            case OpKind::kMatMul: return LowerMatMul(op);
            case OpKind::kRope: return LowerRope(op);
            case OpKind::kAttention: return LowerAttention(op);
            case OpKind::kGlu: return LowerGlu(op);
            case OpKind::kAdd: return LowerAdd(op);
            case OpKind::kAddBias: return LowerAddBias(op);
            case OpKind::kScale: return LowerScale(op);
            case OpKind::kSoftCap: return LowerSoftCap(op);
            case OpKind::kSelectRows: return LowerSelectRows(op);
            case OpKind::kAllReduce: return LowerAllReduce(op);
            case OpKind::kAllGather: return LowerAllGather(op);
            case OpKind::kSend: return LowerSend(op);
            case OpKind::kRecv: return LowerRecv(op);
            case OpKind::kRoute: return LowerRoute(op);
            case OpKind::kExpertMatMul: return LowerExpertMatMul(op);
            case OpKind::kExpertSum: return LowerExpertSum(op);
            case OpKind::kGateRows: return LowerGateRows(op);
            case OpKind::kHeadMatMul: return LowerHeadMatMul(op);
            case OpKind::kPickColumns: return LowerPickColumns(op);
            case OpKind::kLatentAttention: return LowerLatentAttention(op);
            case OpKind::kAdapt: return LowerAdapt(op);
            case OpKind::kGatherRows:
            case OpKind::kReduceScatterRows:
            case OpKind::kSliceRows:
            case OpKind::kZero:
            case OpKind::kSliceColumns:
            case OpKind::kPadColumns:
            case OpKind::kSoftmaxCrossEntropy:
            case OpKind::kMatMulGradInput:
            case OpKind::kMatMulGradWeight:
            case OpKind::kBiasGrad:
            case OpKind::kRmsNormGradInput:
            case OpKind::kRmsNormGradWeight:
            case OpKind::kAttentionGrad:
            case OpKind::kGluGrad:
            case OpKind::kRouterLoad:
            case OpKind::kLoadBalance:
            case OpKind::kRouteGrad:
            case OpKind::kExpertMatMulGradInput:
            case OpKind::kExpertMatMulGradWeight:
            case OpKind::kExpertSumGradInput:
            case OpKind::kExpertSumGradWeight:
            case OpKind::kGateRowsGrad:
            case OpKind::kRouterLoadGrad:
            case OpKind::kLoadBalanceGrad:
            case OpKind::kEmbeddingGrad:
            case OpKind::kSelectRowsGrad:
            case OpKind::kSoftmaxCrossEntropyGrad:
            case OpKind::kLinearCrossEntropy:
            case OpKind::kLinearCrossEntropyGrad:
            case OpKind::kGatherShares:
            case OpKind::kReduceShares:
            case OpKind::kSumOver:
            case OpKind::kAddSquares:
            case OpKind::kAdamUpdate:
            case OpKind::kAdam8bitUpdate:
            case OpKind::kSgdUpdate:
            case OpKind::kAdafactorSums:
            case OpKind::kAdafactorMoments:
            case OpKind::kAdafactorSizes:
            case OpKind::kAdafactorUpdate: break;
        }
        return Refuse(op);
    }
    Error Refuse(const program::Op& op) const {
        return MakeError(ErrorCode::kUnsupported,
                         "program op {} ({}) is a training op; the CPU backend runs inference only",
                         op_, program::OpName(op.kind()));
    }

    Status LowerEmbedding(const program::Op& op) {
        kernels::EmbeddingArgs args;
        args.weight = buffers_.matrices[Index(op.inputs[1])];
        args.first_row = op.as<program::Embedding>().first_row;
        args.y = Floats(op.outputs[0]);
        args.y_stride = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerRmsNorm(const program::Op& op) {
        const auto& a = op.as<program::RmsNorm>();
        kernels::RmsNormArgs args;
        args.x = Floats(op.inputs[0]);
        if (!a.plain) args.weight = Floats(op.inputs[1]);
        args.y = Floats(op.outputs[0]);
        args.eps = a.eps;
        args.group = a.group;
        args.cols = args.x_stride = args.y_stride = Cols(op.outputs[0]);
        if (a.whole != 0) {
            args.squares = Floats(op.inputs[2]) + a.square;
            args.squares_stride = Cols(op.inputs[2]);
            args.whole = a.whole;
        }
        Push(args, op.outputs[0]);
        return {};
    }

    // A call for each input.
    Status LowerSumSquares(const program::Op& op) {
        const auto& a = op.as<program::SumSquares>();
        for (size_t i = 0; i < a.columns.size(); ++i) {
            kernels::SumSquaresArgs args;
            args.x = Floats(op.inputs[i]) + a.columns[i].begin;
            args.x_stride = Cols(op.inputs[i]);
            args.cols = a.columns[i].count;
            if (IsWide(op.outputs[0])) {
                args.wide = Doubles(op.outputs[0]) + i;
            } else {
                args.y = Floats(op.outputs[0]) + i;
            }
            args.y_stride = Cols(op.outputs[0]);
            Push(args, op.outputs[0]);
        }
        return {};
    }

    Status LowerMatMul(const program::Op& op) {
        const ValueId x = op.inputs[0];
        kernels::MatMulArgs args;
        args.weight = buffers_.matrices[Index(op.inputs[1])];
        args.x = Floats(x);
        args.x_stride = Cols(x);
        if (Prepares(op)) args.prepared = Prepared(x, FormFor(op));
        if (op.inputs.size() == 3) args.bias = Floats(op.inputs[2]);
        args.segment_cols = op.as<program::MatMul>().segment_cols;
        if (IsWide(op.outputs[0])) {
            args.wide = Doubles(op.outputs[0]);
        } else if (adapts_ && segmented_.contains(op.outputs[0])) {
            args.wide = adapted_;  // LowerAdapt rounds it
        } else {
            args.y = Floats(op.outputs[0]);
        }
        args.y_stride = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    // A sum over columns that is no sum over ranks: it is rounded here, behind the adapters, as it
    // is behind the all-reduce where there are several ranks.
    bool IsSegmentedHere(const program::Op& op) const {
        return op.as<program::Adapt>().segment_cols != 0 && !IsWide(op.outputs[0]);
    }
    int64_t AdapterStride(const program::Op& op) const {
        int64_t rank = 0;
        const auto& a = op.as<program::Adapt>();
        for (size_t i = 0; i < a.adapters.size(); ++i) {
            rank = std::max(rank, program_.value(a.A(op.inputs, i)).shape[0]);
        }
        return (rank + kernels::kStripRows - 1) / kernels::kStripRows * kernels::kStripRows;
    }

    // Two calls. The second ones of ops that follow one another (Q, K and V) are made together, so
    // that the team meets once for all of them.
    Status LowerAdapt(const program::Op& op) {
        if (!adapts_) return {};
        const auto& a = op.as<program::Adapt>();
        std::vector<kernels::AdapterPair>& pairs = buffers_.pairs.emplace_back();
        for (size_t i = 0; i < a.adapters.size(); ++i) {
            pairs.push_back({a.adapters[i], buffers_.matrices[Index(a.A(op.inputs, i))],
                             buffers_.matrices[Index(a.B(op.inputs, i))]});
        }
        const bool wide = a.segment_cols != 0;
        std::byte* u = adapter_u_ + static_cast<int64_t>(ups_.size()) * adapter_u_bytes_;
        kernels::AdaptDownArgs down;
        kernels::AdaptUpArgs up;
        down.pairs = up.pairs = pairs;
        down.x = Floats(op.inputs[0]);
        down.x_stride = Cols(op.inputs[0]);
        down.segment_cols = a.segment_cols;
        down.u_stride = up.u_stride = AdapterStride(op);
        if (wide) {
            up.wide_u = down.wide_u = reinterpret_cast<double*>(u);
            up.wide = IsWide(op.outputs[0]) ? Doubles(op.outputs[0]) : adapted_;
        } else {
            up.u = down.u = reinterpret_cast<float*>(u);
        }
        if (!IsWide(op.outputs[0])) up.y = Floats(op.outputs[0]);
        up.y_stride = up.cols = Cols(op.outputs[0]);
        Push(down, op.outputs[0]);
        ups_.push_back({up, op_, op.outputs[0]});
        return {};
    }

    void TakeUps() {
        const int32_t op = op_;
        for (const Up& up : ups_) {
            op_ = up.op;
            Push(up.args, up.rows_like);
        }
        op_ = op;
        ups_.clear();
    }

    // One prepared form of x: made once for all the MatMuls in a row that read x.
    const std::byte* Prepared(ValueId x, kernels::Prepared as) {
        for (int i : {0, 1}) {
            if (prepared_value_[i] == x && prepared_as_[i] == as) return prepared_[i];
        }
        next_prepared_ ^= 1;
        prepared_value_[next_prepared_] = x;
        prepared_as_[next_prepared_] = as;
        kernels::PrepareArgs args;
        args.as = as;
        args.x = Floats(x);
        args.cols = args.x_stride = Cols(x);
        args.out = prepared_[next_prepared_];
        PushRowWise(args, x);
        return args.out;
    }

    // A row-wise call over rows like those of `rows_like`.
    template <typename Args>
    void PushRowWise(const Args& args, ValueId rows_like) {
        if (!IsSlots(rows_like)) return Push(args, rows_like);
        Push(OfExperts<Args>{args, plan_.begin + planned_.count}, rows_like);
        calls_.back().row_factor = program_.value(rows_like).shape[1];
    }

    Status LowerRoute(const program::Op& op) {
        const auto& a = op.as<program::Route>();
        kernels::RouteArgs args;
        args.logits = Floats(op.inputs[0]);
        if (a.factors) args.factors = Floats(op.inputs.back());
        if (op.inputs.size() == (a.factors ? 3u : 2u)) args.bias = Floats(op.inputs[1]);
        args.experts = Cols(op.inputs[0]);
        args.used = Cols(op.outputs[0]);
        args.sigmoid = a.score == program::GateScore::kSigmoid;
        args.groups = a.groups;
        args.groups_used = a.groups_used;
        args.group_best = a.group_best;
        args.renormalise = a.renormalise;
        args.scale = a.scale;
        args.ids = reinterpret_cast<int32_t*>(buffers_.values[Index(op.outputs[0])]);
        args.weights = Floats(op.outputs[1]);
        if (args.experts > kernels::kMostExperts) {
            return MakeError(ErrorCode::kUnsupported, "program op {} (route): {} experts; most: {}",
                             op_, args.experts, kernels::kMostExperts);
        }
        Push(args, op.outputs[0]);
        return {};
    }

    // Makes the plan of the experts that the op's weight holds, if it is not the one at hand: ops
    // that share ids follow one another.
    Status Plan(const program::Op& op, int64_t first_expert) {
        const ValueId ids = op.inputs[1];
        const int64_t count = program_.value(WeightOf(op)).shape[0];
        const bool at_hand =
            planned_ids_ == ids && planned_.first_expert == first_expert && planned_.count == count;
        if (at_hand) return {};
        if (IsSlots(op.inputs[0])) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} ({}): its rows stand in the order of other experts",
                             op_, program::OpName(op.kind()));
        }
        planned_ids_ = ids;
        planned_ = {};
        planned_.ids = Ids(ids);
        planned_.used = Cols(ids);
        planned_.first_expert = first_expert;
        planned_.count = count;
        planned_.plan = plan_;
        Push(planned_, ids);
        return {};
    }

    Status LowerExpertMatMul(const program::Op& op) {
        WEFT_TRY(Plan(op, op.as<program::ExpertMatMul>().first_expert));
        const ValueId x = op.inputs[0];
        kernels::ExpertMatMulArgs args;
        args.weight = buffers_.stacks[Index(op.inputs[2])];
        if (op.inputs.size() == 4) args.bias = Floats(op.inputs[3]);
        args.plan = plan_;
        args.used = planned_.used;
        args.by_token = !IsSlots(x);
        args.x = Floats(x);
        args.x_stride = Cols(x);
        if (Prepares(op)) args.prepared = Prepared(x, FormFor(op));
        args.y = Floats(op.outputs[0]);
        args.y_stride = Cols(op.outputs[0]);
        args.scratch = group_scratch_;
        args.scratch_bytes = group_scratch_bytes_;
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerExpertSum(const program::Op& op) {
        const auto& a = op.as<program::ExpertSum>();
        WEFT_TRY(Plan(op, a.first_expert));
        const ValueId x = op.inputs[0], y = op.outputs[0];
        kernels::ExpertSumArgs args;
        args.weight = buffers_.stacks[Index(op.inputs[3])];
        if (a.bias) args.bias = Floats(op.inputs[4]);
        args.plan = plan_;
        args.used = planned_.used;
        args.weights = Floats(op.inputs[2]);
        args.x = Floats(x);
        args.x_stride = Cols(x);
        if (Prepares(op)) args.prepared = Prepared(x, FormFor(op));
        args.segment_cols = a.segment_cols;
        if (a.base) {
            const ValueId base = op.inputs.back();
            IsWide(base) ? void(args.wide_base = Doubles(base)) : void(args.base = Floats(base));
        }
        args.wide = IsWide(y) ? Doubles(y) : wide_;
        if (!IsWide(y)) args.y = Floats(y);
        args.scratch = group_scratch_;
        args.scratch_bytes = group_scratch_bytes_;
        Push(args, y);
        return {};
    }

    Status LowerGateRows(const program::Op& op) {
        kernels::GateRowsArgs args;
        args.x = Floats(op.inputs[0]);
        args.gate = Floats(op.inputs[1]);
        args.cols = Cols(op.outputs[0]);
        args.y = Floats(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerPickColumns(const program::Op& op) {
        const auto& a = op.as<program::PickColumns>();
        kernels::PickColumnsArgs args;
        args.x = Floats(op.inputs[0]);
        args.heads = a.heads;
        args.head_cols = Cols(op.inputs[0]) / a.heads;
        args.begin = a.begin;
        args.size = Cols(op.outputs[0]) / a.heads;
        args.y = Floats(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerLatentAttention(const program::Op& op) {
        const auto& a = op.as<program::LatentAttention>();
        kernels::LatentWriteArgs write;
        write.latent = Floats(op.inputs[2]);
        write.key = Floats(op.inputs[3]);
        write.rank = Cols(op.inputs[2]);
        write.rope = Cols(op.inputs[3]);
        write.cache = buffers_.caches[Index(op.inputs[4])];
        if (write.rank + write.rope > kernels::kMostLatentColumns) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} (latent_attention): {} columns are cached; most: {}",
                             op_, write.rank + write.rope, kernels::kMostLatentColumns);
        }
        Push(write, op.outputs[0]);
        kernels::LatentAttentionArgs args;
        args.q_latent = Floats(op.inputs[0]);
        args.q_key = Floats(op.inputs[1]);
        args.heads = a.heads;
        args.rank = write.rank;
        args.rope = write.rope;
        args.cache = write.cache;
        args.scale = a.scale;
        args.scratch = attention_scratch_;
        args.scratch_floats = scratch_floats_;
        args.out = Floats(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    // Prepared as rows of one head each.
    Status LowerHeadMatMul(const program::Op& op) {
        kernels::HeadMatMulArgs args;
        args.weight = buffers_.stacks[Index(op.inputs[1])];
        args.x = Floats(op.inputs[0]);
        if (Prepares(op)) {
            next_prepared_ ^= 1;
            prepared_value_[next_prepared_] = program::kNoValue;
            kernels::PrepareArgs prepare;
            prepare.as = FormFor(op);
            prepare.x = args.x;
            prepare.cols = prepare.x_stride = args.weight.cols;
            prepare.out = prepared_[next_prepared_];
            args.prepared = prepare.out;
            Push(prepare, op.inputs[0]);
            calls_.back().row_factor = args.weight.count;
        }
        args.y = Floats(op.outputs[0]);
        args.scratch = group_scratch_;
        args.scratch_bytes = group_scratch_bytes_;
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerRope(const program::Op& op) {
        const auto& a = op.as<program::Rope>();
        float* table = tables_.at(TableKey(a));
        if (std::ranges::find(tables_made_, table) == tables_made_.end()) {
            tables_made_.push_back(table);
            kernels::RopeTableArgs make;
            make.inverse_frequency = a.inverse_frequency.data();
            make.rotary_dim = a.rotary_dim;
            make.magnitude = a.magnitude;
            make.out = table;
            Push(make, op.outputs[0]);
        }
        kernels::RopeArgs args;
        args.x = Floats(op.inputs[0]);
        args.cos_sin = table;
        args.sign = a.sign;
        args.neighbours = a.neighbours;
        args.head_dim = a.head_dim;
        args.rotary_dim = a.rotary_dim;
        args.heads = Cols(op.outputs[0]) / a.head_dim;
        args.y = Floats(op.outputs[0]);
        args.x_stride = args.y_stride = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerAttention(const program::Op& op) {
        const auto& a = op.as<program::Attention>();
        if (!a.cached(op.inputs.size())) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} (attention) has no KV cache: that is for training",
                             op_);
        }
        const size_t caches = op.inputs.size() - 2;
        kernels::KvWriteArgs write;
        write.k = Floats(op.inputs[1]);
        write.v = Floats(op.inputs[2]);
        write.k_stride = Cols(op.inputs[1]);
        write.v_stride = Cols(op.inputs[2]);
        write.k_cache = buffers_.caches[Index(op.inputs[caches])];
        write.v_cache = buffers_.caches[Index(op.inputs[caches + 1])];
        Push(write, op.outputs[0]);
        kernels::AttentionArgs args;
        args.q = Floats(op.inputs[0]);
        args.q_stride = args.out_stride = Cols(op.outputs[0]);
        args.k_cache = write.k_cache;
        args.v_cache = write.v_cache;
        args.heads = a.heads;
        args.first_head = a.first_head;
        args.group = a.group;
        args.first_kv_head = a.first_kv_head;
        args.scale = a.scale;
        args.window = a.window;
        args.soft_cap = a.soft_cap;
        if (a.sinks) args.sinks = Floats(op.inputs[3]);
        args.scratch = attention_scratch_;
        args.scratch_floats = scratch_floats_;
        args.out = Floats(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerGlu(const program::Op& op) {
        kernels::GluArgs args;
        args.gate = Floats(op.inputs[0]);
        args.up = Floats(op.inputs[1]);
        args.out = Floats(op.outputs[0]);
        args.cols = args.gate_stride = args.up_stride = args.out_stride = Cols(op.outputs[0]);
        args.activation = op.as<program::Glu>().activation;
        PushRowWise(args, op.outputs[0]);
        return {};
    }

    Status LowerAddBias(const program::Op& op) {
        kernels::AddBiasArgs args;
        args.bias = Floats(op.inputs[1]);
        return PushMap(op, args);
    }

    Status LowerScale(const program::Op& op) {
        kernels::ScaleArgs args;
        args.factor = op.as<program::Scale>().factor;
        return PushMap(op, args);
    }

    Status LowerSoftCap(const program::Op& op) {
        kernels::SoftCapArgs args;
        args.cap = op.as<program::SoftCap>().cap;
        return PushMap(op, args);
    }

    // x [rows, cols] -> y of the same shape.
    template <typename Args>
    Status PushMap(const program::Op& op, Args args) {
        args.x = Floats(op.inputs[0]);
        args.y = Floats(op.outputs[0]);
        args.cols = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerAdd(const program::Op& op) {
        AddCall args;
        args.add.a = Floats(op.inputs[0]);
        args.add.b = Floats(op.inputs[1]);
        args.add.out = Floats(op.outputs[0]);
        args.cols = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerSelectRows(const program::Op& op) {
        SelectRowsCall args;
        args.x = Floats(op.inputs[0]);
        args.y = Floats(op.outputs[0]);
        args.cols = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerAllReduce(const program::Op& op) {
        AllReduceCall args;
        if (IsWide(op.inputs[0])) {
            args.wide = Doubles(op.inputs[0]);
        } else {
            args.x = Floats(op.inputs[0]);
        }
        args.y = Floats(op.outputs[0]);
        args.cols = Cols(op.outputs[0]);
        Push(args, op.outputs[0]);
        // In halves (halves.h), the other half may have gone over it by then.
        std::ranges::fill(prepared_value_, program::kNoValue);
        return {};
    }

    Status LowerAllGather(const program::Op& op) {
        const auto& a = op.as<program::AllGather>();
        AllGatherCall args;
        args.x = Floats(op.inputs[0]);
        args.y = Floats(op.outputs[0]);
        args.mine = Cols(op.inputs[0]);
        args.begin = a.begin;
        args.cols = Cols(op.outputs[0]);
        for (int64_t part : a.parts) {
            args.part_bytes.push_back(static_cast<size_t>(part) * sizeof(float));
        }
        Push(args, op.outputs[0]);
        return {};
    }

    Status LowerSend(const program::Op& op) {
        SendCall args;
        args.x = Floats(op.inputs[0]);
        args.cols = Cols(op.inputs[0]);
        args.peer = op.as<program::Send>().peer;
        Push(args, op.inputs[0]);
        return {};
    }

    Status LowerRecv(const program::Op& op) {
        RecvCall args;
        args.y = Floats(op.outputs[0]);
        args.cols = Cols(op.outputs[0]);
        args.peer = op.as<program::Recv>().peer;
        Push(args, op.outputs[0]);
        return {};
    }

    // rows_like: a value whose first dimension is the call's rows.
    void Push(CallArgs args, ValueId rows_like) {
        Call call;
        call.args = std::move(args);
        call.op = op_;
        call.per_output = program_.value(rows_like).shape[0] == program::kOutputs;
        calls_.push_back(std::move(call));
    }

    static size_t Index(ValueId id) { return static_cast<size_t>(id); }
    const int32_t* Ids(ValueId id) const {
        return reinterpret_cast<const int32_t*>(buffers_.values[Index(id)]);
    }
    float* Floats(ValueId id) const { return reinterpret_cast<float*>(buffers_.values[Index(id)]); }
    double* Doubles(ValueId id) const {
        return reinterpret_cast<double*>(buffers_.values[Index(id)]);
    }
    bool IsWide(ValueId id) const { return program_.value(id).dtype == DType::kF64; }
    int64_t Cols(ValueId id) const {
        const program::Shape& shape = program_.value(id).shape;
        return shape[shape.rank - 1];
    }

    const program::Program& program_;
    const CompileOptions& options_;
    const kernels::Kernels& kernels_;
    int threads_;
    Buffers& buffers_;
    std::vector<Call> calls_;
    int32_t op_ = 0;
    std::byte* prepared_[2] = {};
    ValueId prepared_value_[2] = {program::kNoValue, program::kNoValue};
    kernels::Prepared prepared_as_[2] = {};
    int next_prepared_ = 0;
    float* attention_scratch_ = nullptr;
    int64_t scratch_floats_ = 0;
    std::byte* group_scratch_ = nullptr;
    int64_t group_scratch_bytes_ = 0;
    kernels::ExpertPlan plan_;
    kernels::PlanExpertsArgs planned_;  // what plan_ holds
    ValueId planned_ids_ = program::kNoValue;
    double* wide_ = nullptr;
    struct Up {
        kernels::AdaptUpArgs args;
        int32_t op;
        ValueId rows_like;
    };
    bool adapts_ = false;          // this list has the Adapt ops
    std::vector<Up> ups_;          // of those at hand
    std::set<ValueId> segmented_;  // what their products write as float64, to be rounded by them
    std::byte* adapter_u_ = nullptr;
    int64_t adapter_u_bytes_ = 0;
    double* adapted_ = nullptr;
    std::map<Angles, float*> tables_;
    std::vector<float*> tables_made_;
};

}  // namespace

Result<CallLists> Lower(const program::Program& program, const CompileOptions& options,
                        const kernels::Kernels& kernels, int threads, Buffers& buffers) {
    return Lowerer(program, options, kernels, threads, buffers).Run();
}

}  // namespace weft::backend
