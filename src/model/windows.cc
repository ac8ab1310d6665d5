#include "model/windows.h"

#include "model/architecture.h"
#include "model/builder.h"

namespace weft::model {

using program::Cut;
using program::Shape;
using program::ValueId;

namespace {

// Reads the positions per window of each layer.
Status ReadStrides(const model_files::ModelSource& source, const std::string& key, int64_t layers,
                   Windowing& w) {
    WEFT_ASSIGN(w.strides, source.meta().Ints(key));
    if (static_cast<int64_t>(w.strides.size()) < layers) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} names {} layers; the model has {}",
                         source.name(), key, w.strides.size(), layers);
    }
    w.strides.resize(static_cast<size_t>(layers));
    for (const int64_t stride : w.strides) {
        w.pools = w.pools || stride != 0;
        if (stride == 0) continue;
        const bool good = stride >= 2 && stride <= 1 << 20 &&
                          (program::kLeastPage % stride == 0 || stride % program::kLeastPage == 0);
        if (good) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} has windows of {} positions. Supported: none (0), divisors of {} "
                         "from 2 on, and its multiples",
                         source.name(), key, stride, program::kLeastPage);
    }
    return {};
}

Status ReadStreams(const model_files::ModelSource& source, const std::string& prefix,
                   Windowing& w) {
    const model_files::Metadata& meta = source.meta();
    const std::string eps = prefix + "hyper_connection.epsilon";
    WEFT_ASSIGN(w.streams, meta.Int(prefix + "hyper_connection.count", 1, program::kMostStreams));
    WEFT_ASSIGN(const double floor, meta.F64Or(eps, 1e-6));
    w.eps = static_cast<float>(floor);
    if (!(floor >= 0 && floor < 1)) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected 0 to 1", source.name(), eps,
                         floor);
    }
    const std::string most = prefix + "hyper_connection.magnitude";
    WEFT_ASSIGN(const double magnitude, meta.F64Or(most, 2));
    w.magnitude = static_cast<float>(magnitude);
    if (magnitude > 0 && magnitude < 1e4) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected 0 to 1e4", source.name(), most,
                     magnitude);
}

}  // namespace

Result<Windowing> ReadWindowing(const model_files::ModelSource& source,
                                const std::string& architecture, int64_t heads, int64_t layers) {
    Windowing w;
    const Traits& traits = TraitsOf(architecture);
    if (traits.streams == Streams::kOne) return w;
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = architecture + ".";
    const std::string groups = prefix + "attention.output_group_count";
    WEFT_TRY(ReadStreams(source, prefix, w));
    w.independent = traits.streams == Streams::kIndependent;
    w.mean = traits.streams == Streams::kMean;
    if (w.independent) return w;
    WEFT_ASSIGN(w.iterations, meta.Int(prefix + "hyper_connection.sinkhorn_iterations", 1, 1000));
    if (!traits.pools_windows) return w;
    WEFT_ASSIGN(w.q_rank, meta.Int(prefix + "attention.q_lora_rank", 1, 1 << 20));
    WEFT_ASSIGN(w.out_rank, meta.Int(prefix + "attention.output_lora_rank", 1, 1 << 20));
    WEFT_ASSIGN(w.out_groups, meta.Int(groups, 1, heads));
    if (heads % w.out_groups != 0) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected a divisor of the {} heads",
                         source.name(), groups, w.out_groups, heads);
    }
    WEFT_ASSIGN(w.hashed, meta.IntOr(prefix + "hash_layer_count", 0, layers, 0));
    WEFT_TRY(ReadStrides(source, prefix + "attention.compress_ratios", layers, w));
    return w;
}

// ---- Streams ------------------------------------------------------------------------------------

ValueId Builder::Spread(ValueId x) {
    const int64_t n = hyper_.windowing.streams;
    if (hyper_.alt_up.streams > 0) return SpreadAltUp(x);
    if (n == 0) return x;
    if (!options_.cache) {
        Fail(MakeError(ErrorCode::kUnsupported,
                       "{}: hyper-connections have no gradient yet: this model can be run, but not "
                       "trained",
                       source_.name()));
    }
    return program_.Emit(program::MixStreams{n}, {x}, "streams",
                         {program_.value(x).shape[0], hyper_.stream_columns()});
}

// name: prefix of the three tensors, such as hc_attn. label: names the weights in the Program.
ValueId Builder::StreamWeights(ValueId streams, const std::string& name, int64_t columns,
                               const std::string& label) {
    const Windowing& w = hyper_.windowing;
    const auto vector = [&](const char* part, int64_t count) {
        return Weight(Tensor(name + part) + ".weight", {{0, count}, {}, count, 0});
    };
    const int64_t all = hyper_.stream_columns();
    const ValueId logits = MatMul(NormPlain(streams, all), Tensor(name + "_fn"),
                                  {{0, columns}, {0, all}, columns, all}, {}, false, label + "_fn");
    const program::StreamWeights weigh{w.streams, w.iterations, w.eps, w.magnitude};
    const int64_t scales = columns == w.streams ? 1 : w.independent ? 2 : 3;
    return program_.EmitLike(weigh, {logits, vector("_base", columns), vector("_scale", scales)},
                             label, logits);
}

Builder::Merged Builder::Merge(ValueId streams, const std::string& part) {
    const int64_t n = hyper_.windowing.streams;
    const std::string name = "hc_" + part;
    const int64_t columns = hyper_.windowing.independent ? 2 * n : n * (2 + n);
    const ValueId weights = StreamWeights(streams, name, columns, Local(name));
    const Shape shape{program_.value(streams).shape[0], hyper_.hidden};
    return {
        program_.Emit(program::MergeStreams{n}, {streams, weights}, Local(part + "_merged"), shape),
        weights};
}

ValueId Builder::Mix(ValueId streams, const Merged& merged, ValueId update) {
    const Shape shape = program_.value(streams).shape;
    return program_.Emit(program::MixStreams{hyper_.windowing.streams},
                         {streams, merged.weights, update}, program_.value(update).name + ".mixed",
                         shape);
}

ValueId Builder::MergeLast(ValueId x) {
    const int64_t n = hyper_.windowing.streams;
    if (hyper_.alt_up.streams > 0) return MergeAltUp(x);
    if (n == 0) return x;
    // (A step may output both logits and hidden states.)
    const std::string name = program_.value(x).name;
    if (hyper_.windowing.mean) {
        ValueId sum = program::kNoValue;
        for (int64_t i = 0; i < n; ++i) {
            const ValueId one =
                Pick(x, 1, i * hyper_.hidden, hyper_.hidden, fmt::format("{}.stream_{}", name, i));
            sum = i == 0 ? one : Add(sum, one);
        }
        return Scale(sum, 1.0f / static_cast<float>(n));
    }
    const ValueId weights = StreamWeights(x, "output_hc", n, name + ".hc");
    return program_.Emit(program::MergeStreams{n}, {x, weights}, name + ".merged",
                         {program_.value(x).shape[0], hyper_.hidden});
}

// ---- Attention ----------------------------------------------------------------------------------

ValueId Builder::RotateLast(ValueId x, int64_t head_dim, const std::string& name, float sign,
                            int64_t behind) {
    const model::Rope& rope = hyper_.ropes.Of(IsWindowed(), options_.context);
    program::Rope attributes{head_dim, hyper_.rotary_dim,      true,
                             sign,     rope.inverse_frequency, rope.magnitude};
    attributes.last = true;
    attributes.behind = behind;
    return program_.EmitLike(attributes, {x, positions_}, Local(name), x);
}

// The means of `values` over windows of `stride` positions, in the rows that end a window. x: rows
// that the tensor `name`_gate reads.
ValueId Builder::MeansOfWindows(ValueId values, ValueId x, const std::string& name, int64_t stride,
                                bool overlaps) {
    const int64_t columns = program_.value(values).shape[1], width = columns / (overlaps ? 2 : 1);
    const ValueId gates = ToAll(x, name + "_gate", columns, hyper_.hidden);
    const ValueId bias = Stack(Tensor(name + "_ape") + ".weight",
                               {{0, 1}, {0, columns}, 1, columns}, {0, stride}, stride);
    const ValueId state = StateSlots(name + "_means", {overlaps ? 6 : 3, width});
    return program_.Emit(program::PoolWindows{overlaps}, {values, gates, positions_, bias, state},
                         Local(name + "_pooled"), {program_.value(x).shape[0], width});
}

// Pooled entries of windows, from the tensors `name`_kv and so on. Short windows overlap.
ValueId Builder::Pooled(ValueId x, const std::string& name, int64_t width) {
    const int64_t stride = hyper_.windowing.StrideOf(layer_);
    const bool overlaps = Windowing::IsShort(stride);
    const ValueId values = ToAll(x, name + "_kv", overlaps ? 2 * width : width, hyper_.hidden);
    const ValueId pooled = MeansOfWindows(values, x, name, stride, overlaps);
    return RotateLast(Norm(pooled, name + "_norm", width), width, name, 1, stride - 1);
}

// Every tensor rank computes the whole indexer from the same rows, so all choose the same windows.
// (Scores are only compared with each other, so the constant factors of transformers are omitted.)
ValueId Builder::ChosenWindows(ValueId x, ValueId latent) {
    const Indexer& m = hyper_.indexer;
    const int64_t columns = m.heads * m.dim, rank = hyper_.windowing.q_rank;
    const int64_t stride = hyper_.windowing.StrideOf(layer_);
    const ValueId q = RotateLast(
        MatMul(latent, Tensor("indexer.attn_q_b"), {{0, columns}, {0, rank}, columns, rank},
               {Cut::kNone}, false, Local("indexer.attn_q_b")),
        m.dim, "index_q");
    const ValueId weights = MatMul(x, Tensor("indexer.proj"), RowsOf({0, m.heads}, m.heads),
                                   {Cut::kNone}, false, Local("indexer.proj"));
    const ValueId keys = Pooled(x, "indexer_compressor", m.dim);
    const ValueId cache = RowCache("index_cache", m.dim, stride);
    const ValueId chosen = program_.Emit(program::IndexTopK{stride}, {q, keys, weights, cache},
                                         Local("chosen"), {program_.value(x).shape[0], m.top});
    program_.values[static_cast<size_t>(chosen)].dtype = DType::kI32;
    return chosen;
}

// One projection per group of heads, then one for all groups.
ValueId Builder::FromGroups(ValueId x) {
    const Windowing& w = hyper_.windowing;
    const int64_t each = hyper_.heads / w.out_groups, columns = each * hyper_.head_dim;
    const Span heads = QueryHeads(), groups{heads.begin / each, heads.end / each};
    const std::string tensor = Tensor("attn_output_a") + ".weight";
    program::Value value;
    value.name = tensor;
    value.storage = program::Storage::kWeight;
    value.shape = {groups.size(), w.out_rank, columns};
    value.slice = {tensor, 0, 0};
    value.slice.first_matrix = groups.begin;
    value.slice.matrix_rows = w.out_rank;
    const int64_t dims[] = {columns, w.out_groups * w.out_rank};
    const model_files::TensorInfo* info = source_.FindNeeded(tensor, dims);
    if (info == nullptr || info->cols != columns || info->rows != w.out_groups * w.out_rank) {
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} is missing or does not have the shape [{}, {}]",
                       source_.name(), tensor, w.out_groups * w.out_rank, columns));
    } else {
        value.dtype = info->dtype;
    }
    const ValueId y = EachHead(x, program_.AddValue(std::move(value)), "attn_output_a");
    const Span own{groups.begin * w.out_rank, groups.end * w.out_rank};
    return FromColumns(y, "attn_output_b", ColumnsOf(own, w.out_groups * w.out_rank), w.out_rank);
}

ValueId Builder::WindowAttention(ValueId x) {
    const Windowing& w = hyper_.windowing;
    const int64_t dim = hyper_.head_dim, stride = w.StrideOf(layer_);
    const Span heads = QueryHeads();
    const ValueId latent = Norm(MatMul(x, Tensor("attn_q_a"), RowsOf({0, w.q_rank}, w.q_rank),
                                       {Cut::kNone}, false, Local("attn_q_a")),
                                "attn_q_a_norm", w.q_rank);
    const ValueId q = MatMul(latent, Tensor("attn_q_b"),
                             {Columns(heads), {0, w.q_rank}, hyper_.heads * dim, w.q_rank},
                             {Cut::kRows}, false, Local("attn_q_b"));
    const ValueId kv =
        MatMul(x, Tensor("attn_kv"), RowsOf({0, dim}, dim), {Cut::kNone}, false, Local("attn_kv"));
    program::WindowAttention attributes{heads.size(), hyper_.window, stride,
                                        hyper_.attention_scale};
    std::vector<ValueId> inputs = {
        RotateLast(NormPlain(q, dim), dim, "q"),
        RotateLast(Norm(kv, "attn_kv_a_norm", dim), dim, "kv"),
        Weight(Tensor("attn_sinks.weight"), {heads, {}, hyper_.heads, 0})};
    if (stride != 0) inputs.push_back(Pooled(x, "attn_compressor", dim));
    if (Windowing::IsShort(stride)) {
        attributes.chooses = true;
        inputs.push_back(ChosenWindows(x, latent));
    }
    inputs.push_back(RowCache("kv_cache", dim));
    if (stride != 0) inputs.push_back(RowCache("entry_cache", dim, stride));
    const Shape shape = program_.value(q).shape;
    const ValueId y = program_.Emit(attributes, std::move(inputs), Local("attention"), shape);
    return FromGroups(RotateLast(y, dim, "attention.back", -1));
}

}  // namespace weft::model
