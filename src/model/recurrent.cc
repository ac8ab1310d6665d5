#include "model/recurrent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "model/architecture.h"
#include "model/builder.h"

namespace weft::model {

using program::Cut;
using program::kTokens;
using program::Shape;
using program::Storage;
using program::ValueId;

namespace {

constexpr int64_t kMostStateHeads = 4096, kMostStateDim = 1024, kMostTaps = 8;
// Epsilon of the norm of keys and queries.
constexpr double kKeyEps = 1e-6;

// Rows of attn_qkv, which are the convolution's channels; in Mamba-2 those of x, B and C.
int64_t Channels(const Recurrent& r) {
    return 2 * r.key_heads * r.key_dim + r.heads * r.value_dim;
}

// Whether any layer has this tensor.
bool HasTensors(const model_files::ModelSource& source, int64_t layers, std::string_view name) {
    for (int64_t layer = 0; layer < layers; ++layer) {
        if (source.FindTensor(fmt::format("blk.{}.{}", layer, name)) != nullptr) return true;
    }
    return false;
}

}  // namespace

bool IsRecurrent(const model_files::ModelSource& source, int64_t layer) {
    return std::ranges::any_of(
        std::array{"ssm_conv1d", "ssm_conv1d_q", "shortconv.conv"}, [&](const char* name) {
            return source.FindTensor(fmt::format("blk.{}.{}.weight", layer, name)) != nullptr;
        });
}

const char* Recurrent::OutputTensor() const {
    switch (kind) {
        case Kind::kDeltaNet: return "ssm_out";
        case Kind::kKimiDelta: return "attn_output";
        case Kind::kMamba:
        case Kind::kMamba2: return "ssm_out";
        case Kind::kShortConv: return "shortconv.out_proj";
    }
    return "";
}

namespace {

Result<Recurrent> ReadKimiDelta(const model_files::Metadata& meta, const std::string& name,
                                const std::string& prefix) {
    Recurrent r;
    r.kind = Recurrent::Kind::kKimiDelta;
    WEFT_ASSIGN(r.heads, meta.Int(prefix + "attention.head_count", 1, kMostStateHeads));
    r.key_heads = r.heads;
    WEFT_ASSIGN(r.key_dim, meta.Int(prefix + "kda.head_dim", 1, kMostStateDim));
    r.value_dim = r.key_dim;
    WEFT_ASSIGN(r.taps, meta.Int(prefix + "ssm.conv_kernel", 2, kMostTaps));
    // Ling 3 bounds decays, Kimi Linear does not, and GLM-5-next's files say.
    const std::string bound = prefix + "kda.gate_lower_bound";
    const bool says = prefix == "glm5-next.";
    const bool bounded = says ? meta.Has(bound) : prefix == "bailingmoe3.";
    WEFT_ASSIGN(const double floor, meta.F64Or(bound, 0));
    WEFT_ASSIGN(const bool safe, meta.BoolOr(prefix + "kda.safe_gate", bounded));
    r.floor = static_cast<float>(floor);
    if (safe != bounded || meta.Has(bound) != bounded || !(floor <= 0 && floor > -100) ||
        (bounded && r.floor == 0)) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} is {} and {}kda.safe_gate {}; supported: {}", name, bound, floor,
                         prefix, safe,
                         bounded ? "a number from -100 to below 0, and true" : "none");
    }
    return r;
}

Result<Recurrent> ReadMamba(const model_files::Metadata& meta, const std::string& prefix) {
    constexpr int64_t kMostChannels = 1 << 15;
    Recurrent r;
    r.kind = Recurrent::Kind::kMamba;
    r.key_heads = r.value_dim = 1;
    WEFT_ASSIGN(r.heads, meta.Int(prefix + "inner_size", 1, kMostChannels));
    WEFT_ASSIGN(r.key_dim, meta.Int(prefix + "state_size", 1, kMostStateDim));
    WEFT_ASSIGN(r.step_rank, meta.Int(prefix + "time_step_rank", 1, kMostChannels));
    WEFT_ASSIGN(r.taps, meta.Int(prefix + "conv_kernel", 2, kMostTaps));
    WEFT_ASSIGN(r.norms_steps, meta.BoolOr(prefix + "dt_b_c_rms", false));
    WEFT_ASSIGN(const double norm_eps, meta.F64Or(prefix + "norm_rms_epsilon", 0));
    r.norm_eps = static_cast<float>(norm_eps);
    return r;
}

Result<Recurrent> ReadShortConv(const model_files::Metadata& meta, const std::string& prefix,
                                int64_t hidden) {
    Recurrent r;
    r.kind = Recurrent::Kind::kShortConv;
    r.value_dim = std::gcd(hidden, int64_t{64});
    r.heads = r.key_heads = hidden / r.value_dim;
    WEFT_ASSIGN(r.taps, meta.Int(prefix + "shortconv.l_cache", 2, kMostTaps));
    return r;
}

}  // namespace

Result<Recurrent> ReadRecurrent(const model_files::ModelSource& source, int64_t layers,
                                const std::string& architecture, int64_t hidden) {
    Recurrent r;
    const model_files::Metadata& meta = source.meta();
    const Traits& traits = TraitsOf(architecture);
    if (!traits.recurrent) return r;
    if (*traits.recurrent == Recurrent::Kind::kKimiDelta) {
        return ReadKimiDelta(meta, source.name(), architecture + ".");
    }
    if (*traits.recurrent == Recurrent::Kind::kShortConv) {
        return ReadShortConv(meta, architecture + ".", hidden);
    }
    const std::string prefix = architecture + ".ssm.";
    if (*traits.recurrent == Recurrent::Kind::kMamba) return ReadMamba(meta, prefix);
    if (traits.may_lack_state && !HasTensors(source, layers, "ssm_conv1d.weight")) return r;
    r.kind = *traits.recurrent;
    const bool mamba = r.kind == Recurrent::Kind::kMamba2;
    WEFT_ASSIGN(r.heads, meta.Int(prefix + "time_step_rank", 1, kMostStateHeads));
    WEFT_ASSIGN(r.key_heads, meta.Int(prefix + "group_count", 1, r.heads));
    WEFT_ASSIGN(r.key_dim, meta.Int(prefix + "state_size", 1, kMostStateDim));
    WEFT_ASSIGN(r.taps, meta.Int(prefix + "conv_kernel", 2, kMostTaps));
    WEFT_ASSIGN(const int64_t inner, meta.Int(prefix + "inner_size", 1, r.heads * kMostStateDim));
    r.value_dim = inner / r.heads;
    r.cycles = traits.cycles;
    WEFT_ASSIGN(r.doubles, meta.BoolOr(prefix + "allow_neg_eigval", false));
    WEFT_ASSIGN(const double norm_eps, meta.F64Or(prefix + "norm_rms_epsilon", 0));
    r.norm_eps = static_cast<float>(norm_eps);
    r.whole_groups =
        mamba ? r.key_heads > 1 && HasTensors(source, layers, "ssm_norm.weight") : !traits.cycles;
    WEFT_ASSIGN(const bool norms, meta.BoolOr(prefix + "dt_b_c_rms", false));
    if (norms) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}dt_b_c_rms is true: norms of steps, B and C are not supported",
                         source.name(), prefix);
    }
    if (inner % r.heads == 0 && r.heads % r.key_heads == 0) return r;
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {} columns (ssm.inner_size) of {} value heads (ssm.time_step_rank) "
                     "cannot be divided evenly over {} key heads (ssm.group_count)",
                     source.name(), inner, r.heads, r.key_heads);
}

// ---- The layer ----------------------------------------------------------------------------------

ValueId Builder::StateSlots(const std::string& name, const Shape& shape) {
    program::Value state;
    state.name = Local(name);
    state.shape = shape;
    state.storage = Storage::kSlots;
    return program_.AddValue(std::move(state));
}

// Convolves x. Column i uses row home.begin + rows.begin + i of the tensor of taps.
ValueId Builder::Convolved(ValueId x, const std::string& name, const Home& home, const Span& rows,
                           bool silu, const Gates& gates) {
    const Recurrent& r = hyper_.recurrent;
    const Span there{home.begin + rows.begin, home.begin + rows.end};
    const std::string weight = home.tensor + ".weight", own = Tensor(name) + "_conv.weight";
    // (In training one matrix, not a stack of vectors.)
    const ValueId taps = options_.cache
                             ? Stack(weight, {{0, 1}, {0, r.taps}, 1, r.taps}, there, home.all_rows)
                             : Weight(weight, {there, {0, r.taps}, home.all_rows, r.taps}, own);
    program_.values[static_cast<size_t>(taps)].name = own;
    const program::CausalConv conv{silu, gates.inner != program::kNoValue, !options_.cache};
    std::vector<ValueId> inputs = {x, taps};
    if (source_.FindTensor(home.tensor + ".bias") != nullptr) {
        inputs.push_back(Weight(home.tensor + ".bias", {there, {}, home.all_rows, 0},
                                Tensor(name) + "_conv.bias"));
    }
    if (conv.gated) inputs.insert(inputs.end(), {gates.inner, gates.outer});
    if (!conv.stateless) {
        inputs.push_back(StateSlots(name + "_rows", {r.taps - 1, rows.size()}));
    }
    return program_.Emit(conv, std::move(inputs), Local(name + "_conv"), {kTokens, rows.size()});
}

// Scales each head of x to the length sqrt(key_dim).
ValueId Builder::OfOneLength(ValueId x) {
    const int64_t dim = hyper_.recurrent.key_dim;
    const program::Value value = program_.value(x);
    const auto eps = static_cast<float>(kKeyEps / static_cast<double>(dim));
    return program_.Emit(program::RmsNorm{eps, dim, 0, 0, true}, {x}, value.name + ".norm",
                         value.shape);
}

// The rule over rows of query, key, value, decay and the others. Training has no state.
ValueId Builder::Recur(program::DeltaRule rule, std::vector<ValueId> inputs,
                       const std::string& name) {
    const Recurrent& r = hyper_.recurrent;
    const Span& heads = shard_.recurrent_heads;
    rule.first_head = heads.begin;
    rule.stateless = !options_.cache;
    if (options_.cache) {
        inputs.push_back(StateSlots("ssm_state", {heads.size(), r.key_dim, r.value_dim}));
    }
    return program_.Emit(rule, std::move(inputs), Local(name),
                         {kTokens, heads.size() * r.value_dim});
}

// In training, if a cut may fall inside a group of heads, every rank has all key heads and computes
// them whole. So no rows of a weight are on some of the ranks.
bool Builder::SharesKeys() const {
    return !options_.cache && shard_.layout.tp > 1 && !hyper_.recurrent.whole_groups;
}
Span Builder::RecurrentKeys() const {
    return SharesKeys() ? Span{0, hyper_.recurrent.key_heads} : shard_.recurrent_keys;
}

// Inputs of decays and strengths: [T, heads] each.
Builder::DeltaGates Builder::ToDeltaGates(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const Span& heads = shard_.recurrent_heads;
    if (!Has("ssm_ba.weight")) {
        const auto to = [&](const char* weight) {
            return MatMul(x, Tensor(weight), RowsOf(heads, r.heads), {Cut::kRows}, false,
                          Local(weight));
        };
        return {to("ssm_alpha"), to("ssm_beta")};
    }
    const int64_t each = r.group();  // (a cut never divides a key head: shard.cc)
    const ValueId both =
        MatMul(x, Tensor("ssm_ba"), RowsOf({2 * heads.begin, 2 * heads.end}, 2 * r.heads),
               {Cut::kRows}, false, Local("ssm_ba"));
    const int64_t groups = heads.size() / each;
    return {Pick(both, groups, each, each, "ssm_alpha"), Pick(both, groups, 0, each, "ssm_beta")};
}

// Gated delta net (Yang et al. 2024) over normed rows, summed over the tensor ranks.
ValueId Builder::GatedDeltaNet(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const Span& heads = shard_.recurrent_heads;
    const Span keys = RecurrentKeys();
    const Span key_rows{keys.begin * r.key_dim, keys.end * r.key_dim};
    const Span values{heads.begin * r.value_dim, heads.end * r.value_dim};
    // In older Qwen3-Next files, ssm_in holds for each key head its query, key, values and gates.
    const int64_t own = r.group() * r.value_dim, each = 2 * (r.key_dim + own);
    ValueId older = program::kNoValue;
    if (Has("ssm_in.weight")) {
        const Slice slice = RowsOf({keys.begin * each, keys.end * each}, r.key_heads * each);
        older = MatMul(x, Tensor("ssm_in"), slice, {Cut::kRows}, false, Local("ssm_in"));
    }
    const auto part = [&](const char* name, const Home& home, const Span& rows, int64_t first,
                          int64_t size, Cut cut = Cut::kRows) {
        return older != program::kNoValue ? Pick(older, keys.size(), first, size, name)
                                          : FromHome(x, name, home, rows, {cut}, false);
    };
    const auto convolved = [&](const char* name, int64_t begin, const Span& rows, int64_t first,
                               int64_t size, Cut cut = Cut::kRows) {
        const Home home{Tensor("attn_qkv"), begin, Channels(r)};
        const Home taps{Tensor("ssm_conv1d"), begin, Channels(r)};
        return Convolved(part(name, home, rows, first, size, cut), name, taps, rows, true, {});
    };
    const int64_t k_begin = r.key_heads * r.key_dim;
    const ValueId q = convolved("ssm_q", 0, key_rows, 0, r.key_dim, KeyCut());
    const ValueId k = convolved("ssm_k", k_begin, key_rows, r.key_dim, r.key_dim, KeyCut());
    // A strength twice as large is a key and a value that are longer by the root of 2.
    const float longer = r.doubles ? std::sqrt(2.0f) : 1.0f;
    const ValueId v = Scale(convolved("ssm_v", 2 * k_begin, values, 2 * r.key_dim, own), longer);
    const DeltaGates gates = ToDeltaGates(x);
    program::DeltaRule rule;
    rule.key_heads = keys.size();
    rule.first_key_head = keys.begin;
    rule.group = r.group();
    if (r.cycles) rule.cycle = r.key_heads;
    rule.key_scale = longer / std::sqrt(static_cast<float>(r.key_dim));
    rule.query_scale = 1.0f / static_cast<float>(r.key_dim);
    const ValueId a = Weight(Tensor("ssm_a"), {heads, {}, r.heads, 0});
    const ValueId dt = Weight(Tensor("ssm_dt.bias"), {heads, {}, r.heads, 0});
    const ValueId y =
        Recur(rule, {OfOneLength(q), OfOneLength(k), v, gates.decay, gates.strength, a, dt},
              "delta_rule");
    const int64_t all_values = r.heads * r.value_dim;
    const ValueId z =
        part("attn_gate", {Tensor("attn_gate"), 0, all_values}, values, 2 * r.key_dim + own, own);
    const float eps = r.norm_eps == 0 ? hyper_.rms_eps : r.norm_eps;
    const ValueId normed = NormWithin(y, "ssm_norm", r.value_dim, eps);
    const ValueId gated = program_.Emit(program::Glu{Activation::kSilu}, {z, normed},
                                        Local("ssm_gated"), {kTokens, values.size()});
    return FromColumns(gated, "ssm_out", ColumnsOf(values, all_values), r.value_dim);
}

// Gated short convolution (LFM2) over normed rows, summed over the tensor ranks: in_proj gives B, C
// and x; out_proj reads C * conv(B * x).
ValueId Builder::ShortConv(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const int64_t all = hyper_.hidden;
    const Span columns{shard_.recurrent_heads.begin * r.value_dim,
                       shard_.recurrent_heads.end * r.value_dim};
    const auto part = [&](const char* name, int64_t number) {
        const Home home{Tensor("shortconv.in_proj"), number * all, 3 * all};
        return FromHome(x, name, home, columns, {Cut::kRows}, false);
    };
    const Gates gates{part("shortconv.b", 0), part("shortconv.c", 1)};
    const ValueId y = Convolved(part("shortconv.x", 2), "shortconv",
                                {Tensor("shortconv.conv"), 0, all}, columns, false, gates);
    return FromColumns(y, "shortconv.out_proj", ColumnsOf(columns, all), r.value_dim);
}

// A low-rank product: `first` gives `rank` columns, on every rank, and `second` this rank's rows.
// If the file has no `second`, `first` is the full matrix.
ValueId Builder::LowRank(ValueId x, const char* first, const char* second, int64_t rank,
                         const Span& rows, int64_t all_rows) {
    if (!Has(std::string(second) + ".weight")) {
        return MatMul(x, Tensor(first), RowsOf(rows, all_rows), {Cut::kRows}, false, Local(first));
    }
    const ValueId narrow =
        MatMul(x, Tensor(first), RowsOf({0, rank}, rank), {Cut::kNone}, false, Local(first));
    return MatMul(narrow, Tensor(second), {rows, {0, rank}, all_rows, rank}, {Cut::kRows}, false,
                  Local(second));
}

// Kimi Delta Attention over normed rows, summed over the tensor ranks: queries, keys and values are
// convolved, each channel of a key has its own decay, and the normed result is gated.
ValueId Builder::KimiDelta(ValueId x) {
    const Recurrent& r = hyper_.recurrent;
    const Span& heads = shard_.recurrent_heads;
    const int64_t all = r.heads * r.key_dim;
    const Span columns{heads.begin * r.key_dim, heads.end * r.key_dim};
    const auto convolved = [&](const char* weight, const char* taps) {
        const ValueId whole =
            FromHome(x, weight, {Tensor(weight), 0, all}, columns, {Cut::kRows}, false);
        return Convolved(whole, weight, {Tensor(taps), 0, all}, columns, true, {});
    };
    const ValueId q = convolved("attn_q", "ssm_conv1d_q");
    const ValueId k = convolved("attn_k", "ssm_conv1d_k");
    const ValueId v = convolved("attn_v", "ssm_conv1d_v");
    const ValueId decay = LowRank(x, "ssm_f_a", "ssm_f_b", r.key_dim, columns, all);
    const ValueId strength = MatMul(x, Tensor("ssm_beta"), RowsOf(heads, r.heads), {Cut::kRows},
                                    false, Local("ssm_beta"));
    program::DeltaRule rule;
    rule.first_key_head = heads.begin;
    rule.key_heads = heads.size();
    rule.by_channel = true;
    rule.floor = r.floor;
    rule.key_scale = 1.0f / std::sqrt(static_cast<float>(r.key_dim));
    rule.query_scale = 1.0f / static_cast<float>(r.key_dim);
    const ValueId a = Weight(Tensor("ssm_a"), {heads, {}, r.heads, 0});
    const ValueId dt = Weight(Tensor("ssm_dt.bias"), {columns, {}, all, 0});
    const ValueId y =
        Recur(rule, {OfOneLength(q), OfOneLength(k), v, decay, strength, a, dt}, "delta_rule");
    const ValueId gate = LowRank(x, "ssm_g_a", "ssm_g_b", r.key_dim, columns, all);
    const ValueId normed = Norm(y, "ssm_norm", r.value_dim);
    const ValueId gated =
        program_.EmitLike(program::GateRows{}, {normed, gate}, Local("ssm_gated"), y);
    return FromColumns(gated, "attn_output", ColumnsOf(columns, all), r.value_dim);
}

// Attention over normed rows; each query head has a gate, stored next to it in attn_q.
ValueId Builder::GatedAttention(ValueId x) {
    const int64_t dim = hyper_.head_dim, heads = shard_.heads.size();
    const ValueId both = FromHome(x, "attn_q", {Tensor("attn_q"), 0, 2 * hyper_.heads * dim},
                                  {2 * Columns(shard_.heads).begin, 2 * Columns(shard_.heads).end},
                                  {Cut::kRows}, false);
    const ValueId q = Norm(Pick(both, heads, 0, dim, "attn_q_heads"), "attn_q_norm", dim);
    const ValueId gate = Pick(both, heads, dim, dim, "attn_q_gates");
    const ValueId k = Norm(ToKvHeads(x, "attn_k", false), "attn_k_norm", dim);
    const ValueId v = ToKvHeads(x, "attn_v", false);
    const ValueId a = Attention(Rope(q, false), Rope(k, false), v);
    const ValueId gated =
        program_.EmitLike(program::GateRows{}, {a, gate}, Local("attention_gated"), a);
    return FromHeads(gated, "attn_output");
}

}  // namespace weft::model
