#include "model/moe.h"

#include <algorithm>

#include "model/architecture.h"
#include "model/builder.h"

namespace weft::model {

using program::Cut;
using program::kNoValue;
using program::kTokens;
using program::Shape;
using program::Storage;
using program::ValueId;

namespace {

constexpr int64_t kMostExpertColumns = 1 << 20, kMostExperts = 1 << 16;

// A deepseek2 file without expert_gating_func is DeepSeek-V2, which has no correction bias, or GLM
// 4.7 Flash, which routes by sigmoids and has one.
bool HasCorrectionBias(const model_files::ModelSource& source) {
    return std::ranges::any_of(source.tensors(), [](const model_files::TensorInfo& tensor) {
        return tensor.name.ends_with(".exp_probs_b.bias");
    });
}

// Routing of an architecture if the file's keys don't define it: as its models were trained.
struct GateDefaults {
    program::GateScore score;
    bool renormalise;
};
GateDefaults DefaultsOf(const model_files::ModelSource& source, const std::string& architecture) {
    const Traits& traits = TraitsOf(architecture);
    const bool sigmoid = traits.sigmoid_if_biased && HasCorrectionBias(source);
    return {sigmoid ? program::GateScore::kSigmoid : traits.gate_score, traits.renormalises};
}

Status ReadScore(const model_files::ModelSource& source, const std::string& prefix,
                 program::Route& route) {
    if (route.score == program::GateScore::kSparseMixer) {
        route.jitter = 0.02f;  // twice router_jitter_noise; no key of files changes it
        return {};
    }
    constexpr int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3, kSqrtSoftplus = 4;
    WEFT_ASSIGN(const int64_t kind,
                source.meta().IntOr(prefix + "expert_gating_func", 0, 1 << 20, 0));
    if (kind == 0) return {};
    if (kind < kSoftmax || kind > kSqrtSoftplus) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}expert_gating_func is {}. Supported: 1 (softmax), 2 (sigmoid), 3 "
                         "(softmax of the chosen), 4 (square root of softplus).",
                         source.name(), prefix, kind);
    }
    route.score = kind == kSigmoid        ? program::GateScore::kSigmoid
                  : kind == kSqrtSoftplus ? program::GateScore::kSqrtSoftplus
                                          : program::GateScore::kSoftmax;
    // The softmax of the chosen logits equals the softmax of all, renormalized.
    if (kind == kSoftmaxOfChosen) route.renormalise = true;
    return {};
}

Status ReadGroups(const model_files::ModelSource& source, const std::string& architecture,
                  Moe& moe) {
    const std::string prefix = architecture + ".";
    const model_files::Metadata& meta = source.meta();
    program::Route& route = moe.route;
    WEFT_ASSIGN(route.groups, meta.IntOr(prefix + "expert_group_count", 0, moe.experts, 1));
    WEFT_ASSIGN(route.groups_used,
                meta.IntOr(prefix + "expert_group_used_count", 0, moe.experts, 1));
    if (route.groups <= 1) {
        route.groups = route.groups_used = 1;
        return {};
    }
    // DeepSeek-V3 and Mistral 4 score a group by the sum of its best two experts; DeepSeek-V2, with
    // softmax scores, by its best.
    const bool two = route.score == program::GateScore::kSigmoid || TraitsOf(architecture).two_best;
    route.group_best = two ? 2 : 1;
    const int64_t size = moe.experts / route.groups;
    if (moe.experts % route.groups == 0 && route.groups_used >= 1 &&
        route.groups_used <= route.groups && size >= route.group_best &&
        moe.used <= size * route.groups_used) {
        return {};
    }
    return MakeError(ErrorCode::kCorrupt,
                     "{}: {}expert_group_count is {} and expert_group_used_count {}; {} of {} "
                     "experts cannot be chosen from these groups",
                     source.name(), prefix, route.groups, route.groups_used, moe.used, moe.experts);
}

bool HasTensor(const model_files::ModelSource& source, int64_t layer, const char* name) {
    return source.FindTensor(fmt::format("blk.{}.{}.weight", layer, name)) != nullptr;
}

}  // namespace

bool HasExperts(const model_files::ModelSource& source, int64_t layer) {
    return HasTensor(source, layer, "ffn_gate_inp");
}

Result<Moe> ReadMoe(const model_files::ModelSource& source, const std::string& architecture,
                    int64_t ffn) {
    Moe moe;
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = architecture + ".";
    WEFT_ASSIGN(moe.experts, meta.IntOr(prefix + "expert_count", 0, kMostExperts, 0));
    if (moe.experts == 0) return moe;
    WEFT_ASSIGN(moe.used, meta.Int(prefix + "expert_used_count", 1, moe.experts));
    WEFT_ASSIGN(moe.identities, meta.IntOr(prefix + "expert_zero_count", 0, kMostExperts, 0));
    WEFT_ASSIGN(moe.ffn,
                meta.IntOr(prefix + "expert_feed_forward_length", 1, kMostExpertColumns, ffn));
    moe.weighs_input = TraitsOf(architecture).weighs_input;
    const int64_t usual = moe.weighs_input ? 1 : 0;  // no key of Llama 4's files says so
    WEFT_ASSIGN(const int64_t shared, meta.IntOr(prefix + "expert_shared_count", 0, 64, usual));
    WEFT_ASSIGN(moe.shared_ffn, meta.IntOr(prefix + "expert_shared_feed_forward_length", 0,
                                           kMostExpertColumns, shared * moe.ffn));
    WEFT_ASSIGN(moe.latent, meta.IntOr(prefix + "moe_latent_size", 0, kMostExpertColumns, 0));
    const GateDefaults defaults = DefaultsOf(source, architecture);
    moe.route.score = defaults.score;
    WEFT_ASSIGN(moe.route.renormalise,
                meta.BoolOr(prefix + "expert_weights_norm", defaults.renormalise));
    WEFT_TRY(ReadScore(source, prefix, moe.route));
    WEFT_TRY(ReadGroups(source, architecture, moe));
    WEFT_ASSIGN(const double scale, meta.F64Or(prefix + "expert_weights_scale", 1.0));
    if (!(scale >= 0 && scale < 1e4)) {
        return MakeError(ErrorCode::kCorrupt, "{}: {}expert_weights_scale is {}; expected 0 to 1e4",
                         source.name(), prefix, scale);
    }
    moe.route.scale = scale == 0 ? 1.0f : static_cast<float>(scale);
    return moe;
}

// ---- The MLP of a layer -------------------------------------------------------------------------

Builder::Routed Builder::Route(ValueId x) {
    const Moe& moe = hyper_.moe;
    const int64_t all = moe.experts + moe.identities;
    const ValueId logits = MatMul(x, Tensor("ffn_gate_inp"), RowsOf({0, all}, all), {Cut::kNone},
                                  Has("ffn_gate_inp.bias"), Local("ffn_gate_inp"));
    const Shape shape{program_.value(x).shape[0], moe.used};
    program::Value ids, weights;
    ids.name = Local("experts");
    ids.dtype = DType::kI32;
    weights.name = Local("expert_weights");
    ids.shape = weights.shape = shape;
    const Routed routed{program_.AddValue(std::move(ids)), program_.AddValue(std::move(weights))};
    program::Op op{moe.route, {logits}, {routed.ids, routed.weights}};
    if (layer_ < hyper_.windowing.hashed) {
        op.attributes.If<program::Route>()->by_token = true;
        op.inputs.insert(op.inputs.end(), {tokens_, ExpertsByToken()});
        program_.ops.push_back(std::move(op));
        return routed;
    }
    for (const char* bias : {"exp_probs_b.bias", "exp_probs_b"}) {  // Hy3: without the suffix
        if (!Has(bias) && hyper_.windowing.streams == 0) continue;  // (required in DeepSeek-V4)
        op.inputs.push_back(Weight(Tensor(bias), {{0, all}, {}, all, 0}));
        break;
    }
    if (Has("ffn_down_exps.scale")) {
        op.attributes.If<program::Route>()->factors = true;
        op.inputs.push_back(
            Weight(Tensor("ffn_down_exps.scale"), {{0, moe.experts}, {}, moe.experts, 0}));
    }
    program_.ops.push_back(std::move(op));
    return routed;
}

// A row of expert ids for each token, looked up by token id.
ValueId Builder::ExpertsByToken() {
    const std::string tensor = Tensor("ffn_gate_tid2eid.weight");
    const int64_t used = hyper_.moe.used;
    const ValueId table =
        Stack(tensor, {{0, 1}, {0, used}, 1, used}, {0, hyper_.vocab}, hyper_.vocab);
    const DType dtype = program_.value(table).dtype;
    if (source_.FindTensor(tensor) != nullptr && dtype != DType::kI32) {
        Fail(MakeError(ErrorCode::kCorrupt, "{}: tensor {} is of type {}; expected I32",
                       source_.name(), tensor, Info(dtype).name));
    }
    return table;
}

// ffn_gate_exps and ffn_up_exps may be one tensor, with each expert's gate before its up (Gemma 4).
Builder::Home Builder::HomeOfExperts(const std::string& weight) const {
    const int64_t all = hyper_.moe.ffn;
    if (Has(weight + ".weight") || !Has("ffn_gate_up_exps.weight")) return {weight, 0, all};
    return {"ffn_gate_up_exps", weight == "ffn_up_exps" ? all : 0, 2 * all};
}

// Computes the columns of experts that this rank holds, whole or in part.
ValueId Builder::ToExperts(ValueId x, const Routed& routed, const std::string& weight) {
    const int64_t columns = shard_.expert_ffn.size();
    const Home home = HomeOfExperts(weight);
    const Span rows{home.begin + shard_.expert_ffn.begin, home.begin + shard_.expert_ffn.end};
    const Slice slice{rows, {0, ExpertWidth()}, home.all_rows, ExpertWidth()};
    const ValueId matrices = Stack(Tensor(home.tensor) + ".weight", slice);
    program::Value& value = program_.values[static_cast<size_t>(matrices)];
    value.name = Tensor(weight) + ".weight";
    value.slice.home_row = home.begin;
    std::vector<ValueId> inputs = {x, routed.ids, matrices};
    if (Has(weight + ".bias")) {
        inputs.push_back(
            Stack(Tensor(weight) + ".bias", {{0, 1}, shard_.expert_ffn, 1, hyper_.moe.ffn}));
    }
    const program::ExpertMatMul attributes{shard_.experts.begin,
                                           shard_.layout.tp == 1 ? Cut::kNone : Cut::kRows};
    const Shape shape{program_.value(x).shape[0], hyper_.moe.used, columns};
    return program_.Emit(attributes, std::move(inputs), Local(weight), shape);
}

ValueId Builder::FromExperts(ValueId x, const Routed& routed, const std::string& weight,
                             ValueId base) {
    program::ExpertSum a;
    a.first_expert = shard_.experts.begin;
    a.cut = shard_.layout.tp == 1 ? Cut::kNone : Cut::kColumns;
    // Among ranks that hold parts of the same experts, the first adds their biases.
    a.bias = Has(weight + ".bias") && shard_.expert_ffn.begin == 0;
    a.base = base != kNoValue;
    const model_files::TensorInfo* info = source_.FindTensor(Tensor(weight) + ".weight");
    if (HidesCuts() && info != nullptr) {
        a.segment_cols = SegmentColumns(*info, ColumnUnit(hyper_.moe.ffn));
    }
    Slice columns{{0, ExpertWidth()}, shard_.expert_ffn, ExpertWidth(), hyper_.moe.ffn};
    x = WholeBlocks(x, Tensor(weight) + ".weight", columns);
    std::vector<ValueId> inputs = {x, routed.ids, routed.weights,
                                   Stack(Tensor(weight) + ".weight", columns)};
    if (a.bias) {
        inputs.push_back(
            Stack(Tensor(weight) + ".bias", {{0, 1}, {0, ExpertWidth()}, 1, ExpertWidth()}));
    }
    if (a.base) inputs.push_back(base);
    const Shape shape{program_.value(x).shape[0], ExpertWidth()};
    const ValueId sum = program_.Emit(a, std::move(inputs), Local(weight), shape);
    if (a.segment_cols != 0 && shard_.layout.tp > 1) SetWide(sum);
    return AllReduce(sum);
}

// The shared expert's gated unit, which ffn_down_shexp reads.
ValueId Builder::SharedExpert(ValueId x) {
    const int64_t all = hyper_.moe.shared_ffn;
    const auto to = [&](const char* weight) {
        return MatMul(x, Tensor(weight), RowsOf(shard_.shared_ffn, all), {Cut::kRows},
                      Has(std::string(weight) + ".bias"), Local(weight));
    };
    if (hyper_.ungated) return Activated(to("ffn_up_shexp"));
    const ValueId gate = to("ffn_gate_shexp"), up = to("ffn_up_shexp");
    const Shape shape = program_.value(gate).shape;
    ValueId y =
        program_.Emit(GluOf(hyper_.shared_limits), {gate, up}, Local("swiglu_shexp"), shape);
    if (Has("ffn_gate_inp_shexp.weight")) {
        const ValueId open = MatMul(x, Tensor("ffn_gate_inp_shexp"), RowsOf({0, 1}, 1),
                                    {Cut::kNone}, false, Local("ffn_gate_inp_shexp"));
        y = program_.Emit(program::GateRows{}, {y, open}, Local("gated_shexp"), shape);
    }
    return y;
}

// The shared expert's addend to this rank's sum of experts.
ValueId Builder::SharedPart(ValueId x) {
    const int64_t all = hyper_.moe.shared_ffn;
    const ValueId sum = PartialFromColumns(SharedExpert(x), "ffn_down_shexp",
                                           ColumnsOf(shard_.shared_ffn, all), ColumnUnit(all));
    if (HidesCuts()) SetWide(sum);
    return sum;
}

ValueId Builder::WeighedRows(ValueId x, Routed& routed) {
    program::Value rows, rest;
    rows.name = Local("weighed");
    rows.shape = {program_.value(x).shape[0], hyper_.moe.used, hyper_.hidden};
    rest.name = Local("rest_weights");
    rest.shape = program_.value(routed.weights).shape;
    const ValueId y = program_.AddValue(std::move(rows)), ones = program_.AddValue(std::move(rest));
    const program::WeighRows weigh{shard_.experts.begin, shard_.experts.size(),
                                   shard_.layout.tp > 1};
    program_.ops.push_back({weigh, {x, routed.ids, routed.weights}, {y, ones}});
    routed.weights = ones;
    return y;
}

ValueId Builder::RoutedSum(ValueId x, Routed routed, ValueId base) {
    if (hyper_.moe.weighs_input) x = WeighedRows(x, routed);
    if (hyper_.ungated) {
        const ValueId y = Activated(ToExperts(x, routed, "ffn_up_exps"));
        return FromExperts(y, routed, "ffn_down_exps", base);
    }
    const ValueId gate = ToExperts(x, routed, "ffn_gate_exps");
    const ValueId up = ToExperts(x, routed, "ffn_up_exps");
    const Shape shape = program_.value(gate).shape;
    const ValueId y =
        program_.Emit(GluOf(hyper_.expert_limits), {gate, up}, Local("swiglu_exps"), shape);
    return FromExperts(y, routed, "ffn_down_exps", base);
}

int64_t Builder::ExpertWidth() const {
    return hyper_.moe.latent > 0 ? hyper_.moe.latent : hyper_.hidden;
}

// Experts on rows of fewer columns; every rank has all of these columns.
ValueId Builder::LatentExperts(ValueId x, const Routed& routed) {
    const int64_t latent = hyper_.moe.latent, hidden = hyper_.hidden;
    const ValueId down = MatMul(x, Tensor("ffn_latent_down"), RowsOf({0, latent}, latent),
                                {Cut::kNone}, Has("ffn_latent_down.bias"), Local("ffn_latent"));
    const ValueId sum = RoutedSum(down, routed, kNoValue);
    return MatMul(sum, Tensor("ffn_latent_up"), {{0, hidden}, {0, latent}, hidden, latent},
                  {Cut::kNone}, Has("ffn_latent_up.bias"), Local("ffn_latent_up"));
}

// Adds x times the weights of the experts without matrices to the sum of the others.
ValueId Builder::WithIdentities(ValueId sum, ValueId x, const Routed& routed) {
    if (hyper_.moe.identities == 0) return sum;
    if (!options_.cache) {
        Fail(MakeError(ErrorCode::kUnsupported,
                       "{}: experts without matrices have no gradient yet: this model can be run, "
                       "but not trained",
                       source_.name()));
    }
    const ValueId kept = program_.EmitLike(program::IdentityExperts{hyper_.moe.experts},
                                           {x, routed.ids, routed.weights}, Local("identities"), x);
    return Add(sum, kept);
}

ValueId Builder::Experts(ValueId x, ValueId gate_input) {
    const bool shared = hyper_.moe.shared_ffn > 0;
    if (hyper_.moe.latent == 0) {
        const ValueId base = shared ? SharedPart(x) : kNoValue;
        const Routed routed = Route(gate_input);
        const ValueId sum = WithIdentities(RoutedSum(x, routed, base), x, routed);
        return WithBias(sum, "ffn_down_shexp");
    }
    const ValueId routed = LatentExperts(x, Route(gate_input));
    if (!shared) return routed;
    const int64_t all = hyper_.moe.shared_ffn;
    return Add(routed, FromColumns(SharedExpert(x), "ffn_down_shexp",
                                   ColumnsOf(shard_.shared_ffn, all), ColumnUnit(all)));
}

ValueId Builder::Stack(const std::string& tensor, const Slice& slice) {
    return Stack(tensor, slice, shard_.experts, hyper_.moe.experts);
}

ValueId Builder::Stack(const std::string& tensor, const Slice& slice, const Span& matrices,
                       int64_t all_matrices) {
    program::Value value;
    value.name = tensor;
    value.storage = Storage::kWeight;
    value.shape = Shape{matrices.size(), slice.rows.size(), slice.cols.size()};
    value.slice = {tensor, slice.rows.begin, slice.cols.begin};
    value.slice.first_matrix = matrices.begin;
    value.slice.matrix_rows = slice.all_rows;
    // For a stack of vectors, each row of the file's tensor is one vector.
    const bool vectors = slice.all_rows == 1;
    const int64_t dims[] = {slice.all_cols, vectors ? all_matrices : slice.all_rows, all_matrices};
    const model_files::TensorInfo* info =
        source_.FindNeeded(tensor, std::span(dims, vectors ? 2 : 3));
    if (info == nullptr) {
        Fail(MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing; a {} model needs it",
                       source_.name(), tensor, hyper_.architecture));
        return program_.AddValue(std::move(value));
    }
    value.dtype = info->dtype;
    const int64_t rows = vectors ? 1 : info->dims[1], count = vectors ? info->rows : info->dims[2];
    if (info->cols != slice.all_cols || rows != slice.all_rows || count != all_matrices ||
        info->rows != rows * count) {
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} is [{}, {}, {}]; expected [{}, {}, {}] from the model's "
                       "hyper-parameters",
                       source_.name(), tensor, count, rows, info->cols, all_matrices,
                       slice.all_rows, slice.all_cols));
    }
    return program_.AddValue(std::move(value));
}

}  // namespace weft::model
