#include "model/builder.h"

#include <cmath>
#include <numeric>

namespace weft::model {

using program::Cut;
using program::kNoValue;
using program::kOutputs;
using program::kTokens;
using program::Shape;
using program::Storage;
using program::ValueId;

namespace {

// Columns that a segmented mat_mul adds in float32 before float64: as many as no cut divides, 64 at
// the most (float64 costs time), where cuts fall on multiples of `unit` and of the dtype's block.
int64_t SegmentColumns(DType dtype, int64_t unit) {
    constexpr int64_t kMost = 64, kLeast = 16;
    const int64_t columns = std::gcd(std::lcm(unit, Info(dtype).block_elements), kMost);
    return columns < kLeast ? kMost : columns;
}

}  // namespace

Builder::Builder(const Hyper& hyper, const Shard& shard, const formats::ModelSource& source,
                 const BuildOptions& options)
    : hyper_(hyper), shard_(shard), source_(source), options_(options) {
    const auto input = [&](const char* name, int64_t rows) {
        program::Value value;
        value.name = name;
        value.dtype = DType::kI32;
        value.shape = {rows};
        value.storage = Storage::kInput;
        return program_.AddValue(std::move(value));
    };
    tokens_ = input("tokens", kTokens);
    positions_ = input("positions", kTokens);
    output_rows_ = input("output_rows", kOutputs);
}

ValueId Builder::Enter() {
    const Shape shape{kTokens, hyper_.hidden};
    if (!shard_.first_stage()) {
        return program_.Emit(program::Recv{shard_.rank - shard_.layout.tp}, {}, "received", shape);
    }
    const ValueId table = Weight("token_embd.weight", RowsOf(shard_.vocab, hyper_.vocab));
    return AllReduce(
        program_.Emit(program::Embedding{shard_.vocab.begin}, {tokens_, table}, "embedded", shape));
}

void Builder::Leave(ValueId x) {
    layer_ = -1;
    if (shard_.last_stage()) return Logits(x);
    program_.ops.push_back({program::Send{shard_.rank + shard_.layout.tp}, {x}, {}});
    if (shard_.rank == 0 && options_.cache) {
        const int sender = (shard_.layout.pp - 1) * shard_.layout.tp;
        program_.Emit(program::Recv{sender}, {}, "logits", {kOutputs, hyper_.vocab});
    }
}

void Builder::Logits(ValueId x) {
    x = program_.Emit(program::SelectRows{}, {x, output_rows_}, "selected",
                      {kOutputs, hyper_.hidden});
    x = Norm(x, "output_norm", hyper_.hidden);
    const bool gather = shard_.layout.tp > 1;
    ValueId logits =
        MatMul(x, hyper_.tied ? "token_embd" : "output", RowsOf(shard_.vocab, hyper_.vocab),
               {Cut::kRows}, false, gather ? "logits.part" : "logits");
    if (gather) {
        logits = program_.Emit(
            program::AllGather{program::Group::kTensor, shard_.vocab_parts, shard_.vocab.begin},
            {logits}, "logits", {kOutputs, hyper_.vocab});
    }
    if (shard_.layout.pp > 1 && shard_.tensor_rank == 0 && options_.cache) {
        program_.ops.push_back({program::Send{0}, {logits}, {}});
    }
}

void Builder::BeginLayer(int64_t layer) {
    layer_ = layer;
}

ValueId Builder::Norm(ValueId x, const std::string& weight, int64_t group) {
    const ValueId w = Weight(Tensor(weight) + ".weight", {{0, group}, {}, group, 0});
    const Shape shape = program_.value(x).shape;
    return program_.Emit(program::RmsNorm{hyper_.rms_eps, group}, {x, w}, Local(weight), shape);
}

ValueId Builder::ToHeads(ValueId x, const std::string& weight, bool bias) {
    const int64_t all = hyper_.heads * hyper_.head_dim;
    return MatMul(x, Tensor(weight), RowsOf(Columns(shard_.heads), all), {Cut::kRows}, bias,
                  Local(weight));
}

ValueId Builder::ToKvHeads(ValueId x, const std::string& weight, bool bias) {
    const int64_t all = hyper_.kv_heads * hyper_.head_dim;
    return MatMul(x, Tensor(weight), RowsOf(Columns(shard_.kv_heads), all),
                  {Cut::kRows, shard_.kv_replicated ? all : 0}, bias, Local(weight));
}

ValueId Builder::ToFfn(ValueId x, const std::string& weight) {
    return MatMul(x, Tensor(weight), RowsOf(shard_.ffn, hyper_.ffn), {Cut::kRows}, false,
                  Local(weight));
}

ValueId Builder::FromHeads(ValueId x, const std::string& weight) {
    const int64_t all = hyper_.heads * hyper_.head_dim;
    return FromColumns(x, weight, ColumnsOf(Columns(shard_.heads), all), hyper_.head_dim);
}

ValueId Builder::FromFfn(ValueId x, const std::string& weight) {
    return FromColumns(x, weight, ColumnsOf(shard_.ffn, hyper_.ffn), FfnUnit(hyper_));
}

ValueId Builder::Rope(ValueId x, bool neighbours) {
    const program::Value value = program_.value(x);
    return program_.Emit(
        program::Rope{hyper_.head_dim, hyper_.rotary_dim, neighbours, 1, hyper_.inverse_frequency},
        {x, positions_}, value.name + ".rope", value.shape);
}

ValueId Builder::Attention(ValueId q, ValueId k, ValueId v) {
    program::Attention attributes;
    attributes.heads = shard_.heads.size();
    attributes.kv_heads = shard_.kv_heads.size();
    attributes.head_dim = hyper_.head_dim;
    attributes.first_head = shard_.heads.begin;
    attributes.first_kv_head = shard_.kv_heads.begin;
    attributes.group = hyper_.group();
    attributes.scale = 1.0f / std::sqrt(static_cast<float>(hyper_.head_dim));
    std::vector<ValueId> inputs = {q, k, v};
    for (const char* name : {"k_cache", "v_cache"}) {
        if (!options_.cache) break;
        program::Value state;
        state.name = Local(name);
        state.dtype = options_.kv_dtype;
        state.shape = {attributes.kv_heads, hyper_.head_dim};
        state.storage = Storage::kState;
        inputs.push_back(program_.AddValue(std::move(state)));
    }
    const Shape shape = program_.value(q).shape;
    return program_.Emit(attributes, std::move(inputs), Local("attention"), shape);
}

ValueId Builder::SwiGlu(ValueId gate, ValueId up) {
    const Shape shape = program_.value(gate).shape;
    return program_.Emit(program::SwiGlu{}, {gate, up}, Local("swiglu"), shape);
}

ValueId Builder::Add(ValueId a, ValueId b) {
    const program::Value value = program_.value(b);
    return program_.Emit(program::Add{}, {a, b}, value.name + ".add", value.shape);
}

Result<program::Program> Builder::Finish() && {
    WEFT_TRY(std::move(status_));
    WEFT_TRY(program::CheckShapes(program_));
    return std::move(program_);
}

void Builder::Fail(Error error) {
    if (status_.ok()) status_ = std::move(error);
}

std::string Builder::Local(const std::string& name) const {
    return layer_ < 0 ? name : fmt::format("l{}.{}", layer_, name);
}

std::string Builder::Tensor(const std::string& name) const {
    return layer_ < 0 ? name : fmt::format("blk.{}.{}", layer_, name);
}

Slice Builder::RowsOf(const Span& rows, int64_t all_rows) const {
    return {rows, {0, hyper_.hidden}, all_rows, hyper_.hidden};
}

Slice Builder::ColumnsOf(const Span& cols, int64_t all_cols) const {
    return {{0, hyper_.hidden}, cols, hyper_.hidden, all_cols};
}

Span Builder::Columns(const Span& heads) const {
    return {heads.begin * hyper_.head_dim, heads.end * hyper_.head_dim};
}

ValueId Builder::Weight(const std::string& tensor, const Slice& slice) {
    if (const ValueId known = program_.Find(tensor); known != kNoValue) return known;
    const bool vector = slice.cols.size() == 0;
    program::Value value;
    value.name = tensor;
    value.storage = Storage::kWeight;
    value.shape = vector ? Shape{slice.rows.size()} : Shape{slice.rows.size(), slice.cols.size()};
    value.slice = {tensor, slice.rows.begin, slice.cols.begin};
    const formats::TensorInfo* info = source_.FindTensor(tensor);
    if (info == nullptr) {
        Fail(MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing; a {} model needs it",
                       source_.name(), tensor, hyper_.architecture));
        return program_.AddValue(std::move(value));
    }
    value.dtype = info->dtype;
    // A vector of n is stored as one row of n.
    const int64_t rows = vector ? info->cols * info->rows : info->rows;
    const int64_t cols = vector ? 0 : info->cols;
    if (rows != slice.all_rows || cols != slice.all_cols) {
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} is [{}, {}]; by the model's hyper-parameters it should be "
                       "[{}, {}]",
                       source_.name(), tensor, rows, cols, slice.all_rows, slice.all_cols));
    }
    return program_.AddValue(std::move(value));
}

ValueId Builder::MatMul(ValueId x, const std::string& tensor, const Slice& slice,
                        program::MatMul attributes, bool bias, const std::string& name) {
    std::vector<ValueId> inputs = {x, Weight(tensor + ".weight", slice)};
    if (bias) inputs.push_back(Weight(tensor + ".bias", {slice.rows, {}, slice.all_rows, 0}));
    if (shard_.layout.tp == 1) attributes.cut = Cut::kNone;
    if (shard_.layout.tp == 1) attributes.shared_rows = 0;
    const int64_t rows = program_.value(x).shape[0];
    return program_.Emit(attributes, std::move(inputs), name, {rows, slice.rows.size()});
}

// For inference the sums are segmented, on one rank too: then any split gives the same bits but for
// the rarest rounding, and 8-bit activations after it round the same way. Training stays in f32.
ValueId Builder::FromColumns(ValueId x, const std::string& weight, const Slice& slice,
                             int64_t unit) {
    program::MatMul attributes;
    attributes.cut = Cut::kColumns;
    const formats::TensorInfo* info = source_.FindTensor(Tensor(weight) + ".weight");
    if (options_.cache && info != nullptr)
        attributes.segment_cols = SegmentColumns(info->dtype, unit);
    x = MatMul(x, Tensor(weight), slice, attributes, false, Local(weight));
    if (attributes.segment_cols != 0 && shard_.layout.tp > 1) {
        program_.values[static_cast<size_t>(x)].dtype = DType::kF64;
    }
    return AllReduce(x);
}

ValueId Builder::AllReduce(ValueId x) {
    if (shard_.layout.tp == 1) return x;
    const program::Value value = program_.value(x);
    return program_.Emit(program::AllReduce{}, {x}, value.name + ".sum", value.shape);
}

}  // namespace weft::model
