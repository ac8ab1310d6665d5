#include "model/latent.h"

#include <cmath>

#include "model/builder.h"

namespace weft::model {

namespace {

constexpr int64_t kMostRank = 1 << 20;

}  // namespace

using program::Cut;
using program::Shape;
using program::Storage;
using program::ValueId;

Result<Latent> ReadLatent(const model_files::ModelSource& source, const std::string& architecture) {
    Latent latent;
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = architecture + ".";
    if (!meta.Has(prefix + "attention.kv_lora_rank")) return latent;
    WEFT_ASSIGN(latent.rank, meta.Int(prefix + "attention.kv_lora_rank", 1, kMostRank));
    WEFT_ASSIGN(latent.q_rank, meta.IntOr(prefix + "attention.q_lora_rank", 0, 1 << 20, 0));
    WEFT_ASSIGN(latent.rope, meta.Int(prefix + "rope.dimension_count", 2, 1024));
    const auto columns = [&](const std::string& name) -> Result<int64_t> {
        const std::string key = prefix + "attention." + name + "_mla";
        return meta.Int(meta.Has(key) ? key : prefix + "attention." + name, 1, 1024);
    };
    WEFT_ASSIGN(const int64_t key, columns("key_length"));
    WEFT_ASSIGN(latent.value, columns("value_length"));
    latent.nope = key - latent.rope;
    if (latent.nope < 1 || latent.rope % 2 != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: latent attention of {} + {} columns, {} of {} rotated, is not "
                         "supported",
                         source.name(), latent.rank, latent.rope, latent.rope, key);
    }
    return latent;
}

// This rank's heads of a per-head matrix: the tensor `own` of the file, or rows
// [begin, begin + rows) of each head's part of attn_kv_b.
ValueId Builder::HeadMatrices(const std::string& own, int64_t rows, int64_t cols, bool transposed) {
    const Latent& m = hyper_.latent;
    if (Has(own + ".weight")) {
        return Stack(Tensor(own) + ".weight", {{0, rows}, {0, cols}, rows, cols}, shard_.heads,
                     hyper_.heads);
    }
    const std::string tensor = Tensor("attn_kv_b") + ".weight";
    program::Value value;
    value.name = Tensor(own) + ".weight";
    value.storage = Storage::kWeight;
    value.shape = {shard_.heads.size(), rows, cols};
    value.slice = {tensor, transposed ? 0 : m.nope, 0};
    value.slice.first_matrix = shard_.heads.begin;
    value.slice.matrix_rows = m.nope + m.value;
    value.slice.transposed = transposed;
    const model_files::TensorInfo* info = source_.FindTensor(tensor);
    if (info == nullptr || info->cols != m.rank ||
        info->rows != hyper_.heads * (m.nope + m.value)) {
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: neither tensor {} nor {} [{}, {}] is there; a {} model needs one",
                       source_.name(), value.name, tensor, hyper_.heads * (m.nope + m.value),
                       m.rank, hyper_.architecture));
        return program_.AddValue(std::move(value));
    }
    // Quantized blocks cannot be turned: their numbers are kept as halves.
    value.dtype = transposed && Info(info->dtype).quantized ? DType::kF16 : info->dtype;
    return program_.AddValue(std::move(value));
}

ValueId Builder::Pick(ValueId x, int64_t heads, int64_t begin, int64_t size,
                      const std::string& name) {
    const Shape shape{program_.value(x).shape[0], heads * size};
    return program_.Emit(program::PickColumns{heads, begin}, {x}, Local(name), shape);
}

ValueId Builder::EachHead(ValueId x, ValueId matrices, const std::string& name) {
    const Shape& weight = program_.value(matrices).shape;
    const Shape shape{program_.value(x).shape[0], weight[0] * weight[1]};
    return program_.Emit(program::HeadMatMul{}, {x, matrices}, Local(name), shape);
}

ValueId Builder::LatentQuery(ValueId x) {
    const Latent& m = hyper_.latent;
    const int64_t each = m.nope + m.rope;
    const Span rows{shard_.heads.begin * each, shard_.heads.end * each};
    if (m.q_rank == 0) {
        return MatMul(x, Tensor("attn_q"), RowsOf(rows, hyper_.heads * each), {Cut::kRows}, false,
                      Local("attn_q"));
    }
    const ValueId a = MatMul(x, Tensor("attn_q_a"), RowsOf({0, m.q_rank}, m.q_rank), {Cut::kNone},
                             false, Local("attn_q_a"));
    return MatMul(Norm(a, "attn_q_a_norm", m.q_rank), Tensor("attn_q_b"),
                  {rows, {0, m.q_rank}, hyper_.heads * each, m.q_rank}, {Cut::kRows}, false,
                  Local("attn_q_b"));
}

// In the absorbed form: a query's part that is not rotated goes through its head's key matrix, so
// that it meets the cached latent itself; the result, a mean of latents, goes through its head's
// value matrix. The cache holds rank + rope columns a position, on every tensor rank the same.
ValueId Builder::LatentAttention(ValueId x) {
    const Latent& m = hyper_.latent;
    const int64_t heads = shard_.heads.size();
    if (!options_.cache) {
        Fail(MakeError(ErrorCode::kUnsupported,
                       "{}: latent attention has no form without a cache: such models cannot be "
                       "trained",
                       source_.name()));
    }
    const auto rotate = [&](ValueId part) {
        const program::Value value = program_.value(part);
        const model::Rope& rope = hyper_.ropes.Of(false, options_.context);
        return program_.Emit(
            program::Rope{m.rope, m.rope, true, 1, rope.inverse_frequency, rope.magnitude},
            {part, positions_}, value.name + ".rope", value.shape);
    };
    const ValueId q = Tempered(LatentQuery(x));
    const ValueId q_key = rotate(Pick(q, heads, m.nope, m.rope, "q_key"));
    const ValueId q_latent = EachHead(Pick(q, heads, 0, m.nope, "q_plain"),
                                      HeadMatrices("attn_k_b", m.rank, m.nope, true), "q_latent");
    const int64_t cached = m.rank + m.rope;
    const ValueId kv = MatMul(x, Tensor("attn_kv_a_mqa"), RowsOf({0, cached}, cached), {Cut::kNone},
                              false, Local("attn_kv_a_mqa"));
    const ValueId latent = Norm(Pick(kv, 1, 0, m.rank, "latent"), "attn_kv_a_norm", m.rank);
    const ValueId key = rotate(Pick(kv, 1, m.rank, m.rope, "key"));
    program::Value state;
    state.name = Local("latent_cache");
    state.dtype = options_.kv_dtype;
    state.shape = {1, cached};
    state.storage = Storage::kState;
    const ValueId cache = program_.AddValue(std::move(state));
    const ValueId means = program_.Emit(program::LatentAttention{heads, hyper_.attention_scale},
                                        {q_latent, q_key, latent, key, cache}, Local("attention"),
                                        program_.value(q_latent).shape);
    const ValueId values =
        EachHead(means, HeadMatrices("attn_v_b", m.value, m.rank, false), "values");
    const Span columns{shard_.heads.begin * m.value, shard_.heads.end * m.value};
    return FromColumns(values, "attn_output", ColumnsOf(columns, hyper_.heads * m.value), m.value);
}

}  // namespace weft::model
