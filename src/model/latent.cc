#include "model/latent.h"

#include <algorithm>

#include "model/architecture.h"
#include "model/builder.h"

namespace weft::model {

namespace {

constexpr int64_t kMostRank = 1 << 20;

// Files of MiniCPM 3 do not say it: each head has its part of the embedding.
Result<int64_t> ValueColumns(const model_files::Metadata& meta, const std::string& prefix,
                             const std::string& key) {
    if (meta.Has(key)) return meta.Int(key, 1, 1024);
    WEFT_ASSIGN(const int64_t hidden, meta.Int(prefix + "embedding_length", 1, 1 << 20));
    WEFT_ASSIGN(const int64_t heads, meta.Int(prefix + "attention.head_count", 1, hidden));
    return std::min<int64_t>(hidden / heads, 1024);
}

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
    const Traits& traits = TraitsOf(architecture);
    const int64_t least = traits.rotates_latents ? 2 : 0;
    WEFT_ASSIGN(latent.rope, meta.Int(prefix + "rope.dimension_count", least, 1024));
    const auto columns = [&](const std::string& name) {
        const std::string key = prefix + "attention." + name + "_mla";
        return meta.Has(key) ? key : prefix + "attention." + name;
    };
    WEFT_ASSIGN(const int64_t key, meta.Int(columns("key_length"), 1, 1024));
    WEFT_ASSIGN(latent.value, ValueColumns(meta, prefix, columns("value_length")));
    latent.nope = key - latent.rope;
    latent.rotates = traits.rotates_latents;
    latent.scales = traits.scales_latents;
    if (traits.usual_latent_eps) {  // else no metadata key holds it
        WEFT_ASSIGN(const double eps,
                    meta.F64Or(prefix + "attention.layer_norm_rms_epsilon", 1e-6));
        latent.eps = static_cast<float>(eps);
    }
    // Layers without rotated columns cache zeros instead, computed from the latent's columns.
    const bool narrow = latent.scales && latent.rank < latent.rope;
    if (latent.nope < 1 || latent.rope % 2 != 0 || narrow) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: latent attention of {} + {} columns, {} of {} rotated, is not "
                         "supported",
                         source.name(), latent.rank, latent.rope, latent.rope, key);
    }
    return latent;
}

namespace {

// Layers with their own indexer, if the file does not say: all layers; in GLM 5.2, recognized by
// its context, the first three and then every fourth.
std::vector<int64_t> UsualIndexers(const std::string& architecture, int64_t context,
                                   int64_t layers) {
    std::vector<int64_t> own;
    const bool shares = TraitsOf(architecture).late_indexers && context >= 1 << 20;
    for (int64_t i = 0; shares && i < layers; ++i) own.push_back(i < 3 || (i - 2) % 4 == 0);
    return own;
}

// Reads attention.indexer.types: for each layer, whether it has an indexer.
Status ReadOwn(const model_files::ModelSource& source, const std::string& key, int64_t layers,
               std::vector<int64_t> own, bool first, Indexer& indexer) {
    if (source.meta().Has(key)) {
        WEFT_ASSIGN(own, source.meta().Ints(key));
    }
    if (own.empty()) return {};
    if (static_cast<int64_t>(own.size()) < layers || (first && own[0] == 0)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: {} has entries for {} layers, with {} for the first; expected {} "
                         "layers{}",
                         source.name(), key, own.size(), own[0], layers,
                         first ? ", the first one with an indexer" : "");
    }
    for (int64_t i = 0; i < layers; ++i) {
        indexer.own.push_back(own[static_cast<size_t>(i)] != 0);
    }
    return {};
}

// GLM-5-next's windows.
Status ReadPools(const model_files::ModelSource& source, const std::string& prefix,
                 Indexer& indexer) {
    const model_files::Metadata& meta = source.meta();
    WEFT_ASSIGN(indexer.stride, meta.IntOr(prefix + "kpool", 1, program::kLeastPage, 1));
    WEFT_ASSIGN(const bool tail, meta.BoolOr(prefix + "kpool_select_tail", true));
    const bool good =
        indexer.top % indexer.stride == 0 && program::kLeastPage % indexer.stride == 0;
    if (good && tail) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: {}top_k is {}, kpool {} and kpool_select_tail {}; expected windows of a "
                     "divisor of {} and of top_k, and true",
                     source.name(), prefix, indexer.top, indexer.stride, tail, program::kLeastPage);
}

// MiniMax M3's indexer, which chooses blocks.
Result<Indexer> ReadBlockIndexer(const model_files::ModelSource& source, const std::string& prefix,
                                 int64_t layers, const HeadShape& heads) {
    Indexer indexer;
    const model_files::Metadata& meta = source.meta();
    WEFT_ASSIGN(const int64_t blocks, meta.Int(prefix + "top_k", 1, 1 << 20));
    WEFT_ASSIGN(indexer.block, meta.Int(prefix + "block_size", 1, (1 << 29) / blocks));
    WEFT_ASSIGN(indexer.local, meta.Int(prefix + "local_blocks", 1, blocks));
    WEFT_ASSIGN(indexer.heads, meta.Int(prefix + "head_count", 1, 1 << 20));
    WEFT_ASSIGN(indexer.dim, meta.Int(prefix + "key_length", 1, 1024));
    indexer.top = blocks * indexer.block;
    if (indexer.heads != heads.kv_heads || heads.rotary_dim > indexer.dim) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}head_count is {} and key_length {}; expected one head per KV head "
                         "({}), with at least the {} rotated columns",
                         source.name(), prefix, indexer.heads, indexer.dim, heads.kv_heads,
                         heads.rotary_dim);
    }
    WEFT_TRY(ReadOwn(source, prefix + "types", layers, {}, false, indexer));
    return indexer;
}

}  // namespace

Result<Indexer> ReadIndexer(const model_files::ModelSource& source, const std::string& architecture,
                            const Latent& latent, int64_t layers, const HeadShape& heads) {
    Indexer indexer;
    const model_files::Metadata& meta = source.meta();
    const std::string prefix = architecture + ".attention.indexer.";
    const Traits& traits = TraitsOf(architecture);
    if (traits.indexer == IndexerKind::kBlocks) {
        return ReadBlockIndexer(source, prefix, layers, heads);
    }
    if (traits.indexer == IndexerKind::kByKeys && !meta.Has(prefix + "top_k")) return indexer;
    WEFT_ASSIGN(indexer.top, meta.Int(prefix + "top_k", 1, 1ll << 20));
    WEFT_ASSIGN(indexer.heads, meta.Int(prefix + "head_count", 1, 1024));
    WEFT_ASSIGN(indexer.dim, meta.Int(prefix + "key_length", 1, 1024));
    WEFT_TRY(ReadPools(source, prefix, indexer));
    indexer.from_hidden = traits.scales_latents;
    indexer.neighbours = traits.indexer_neighbours;
    const std::string eps = architecture + (traits.index_last ? ".attention.layer_norm_rms_epsilon"
                                                              : ".attention.layer_norm_epsilon");
    WEFT_ASSIGN(const double given, meta.F64Or(eps, 1e-6));
    indexer.eps = static_cast<float>(given);
    if (!(given >= 0 && given < 1)) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} is {}; expected 0 to 1", source.name(), eps,
                         given);
    }
    if (traits.pools_windows) return indexer;  // its indexer chooses windows (windows.h)
    const bool queries = latent.q_rank > 0 || indexer.from_hidden;
    if (latent.rank == 0 || !queries || latent.rope > indexer.dim) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: an indexer of {} columns, {} of them rotated, with latents of {} "
                         "columns and query latents of {} is not supported",
                         source.name(), indexer.dim, latent.rope, latent.rank, latent.q_rank);
    }
    WEFT_ASSIGN(const int64_t context,
                meta.IntOr(architecture + ".context_length", 1, 1ll << 31, 1));
    WEFT_TRY(ReadOwn(source, prefix + "types", layers, UsualIndexers(architecture, context, layers),
                     true, indexer));
    return indexer;
}

// The per-head matrices of this rank's heads: the file's tensor `own`, or rows of each head's part
// of attn_kv_b, transposed for keys; but training does not transpose its weights.
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
    if (transposed && !options_.cache) {
        transposed = false;
        value.shape = {shard_.heads.size(), cols, rows};
    }
    value.slice.transposed = transposed;
    const model_files::TensorInfo* info = source_.FindTensor(tensor);
    if (info == nullptr || info->cols != m.rank ||
        info->rows != hyper_.heads * (m.nope + m.value)) {
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} is missing, and so is {} [{}, {}]; a {} model needs one of "
                       "them",
                       source_.name(), value.name, tensor, hyper_.heads * (m.nope + m.value),
                       m.rank, hyper_.architecture));
        return program_.AddValue(std::move(value));
    }
    // Quantized blocks cannot be transposed: the values become F16.
    value.dtype = transposed && Info(info->dtype).quantized ? DType::kF16 : info->dtype;
    return program_.AddValue(std::move(value));
}

ValueId Builder::Pick(ValueId x, int64_t heads, int64_t begin, int64_t size,
                      const std::string& name) {
    const Shape shape{program_.value(x).shape[0], heads * size};
    return program_.Emit(program::PickColumns{heads, begin}, {x}, Local(name), shape);
}

ValueId Builder::EachHead(ValueId x, ValueId matrices, const std::string& name, bool transposed) {
    const Shape& weight = program_.value(matrices).shape;
    const Shape shape{program_.value(x).shape[0], weight[0] * weight[transposed ? 2 : 1]};
    return program_.Emit(program::HeadMatMul{transposed}, {x, matrices}, Local(name), shape);
}

// The normed latent of queries; kNoValue if the model has none.
ValueId Builder::QueryLatent(ValueId x) {
    const int64_t rank = hyper_.latent.q_rank;
    if (rank == 0) return program::kNoValue;
    const ValueId a = ToAll(x, "attn_q_a", rank, hyper_.hidden);
    return NormWithin(a, "attn_q_a_norm", rank, hyper_.latent.eps);
}

ValueId Builder::LatentQuery(ValueId x, ValueId latent) {
    const Latent& m = hyper_.latent;
    const int64_t each = m.nope + m.rope;
    const Span rows{shard_.heads.begin * each, shard_.heads.end * each};
    if (latent == program::kNoValue) {
        return MatMul(x, Tensor("attn_q"), RowsOf(rows, hyper_.heads * each), {Cut::kRows}, false,
                      Local("attn_q"));
    }
    return MatMul(latent, Tensor("attn_q_b"), {rows, {0, m.q_rank}, hyper_.heads * each, m.q_rank},
                  {Cut::kRows}, false, Local("attn_q_b"));
}

// Whether sequences of this job can have more positions than the indexer chooses.
bool Builder::UsesIndexer() const {
    const int64_t context = options_.context > 0 ? options_.context : hyper_.context;
    return hyper_.indexer.top > 0 && context > hyper_.indexer.top;
}

// LayerNorm of an indexer.
ValueId Builder::NormIndex(ValueId x, const std::string& name, int64_t columns) {
    const auto vector = [&](const std::string& part) {
        return Weight(Tensor(name) + "." + part, {{0, columns}, {}, columns, 0});
    };
    const Shape shape = program_.value(x).shape;
    program::RmsNorm norm{hyper_.indexer.eps, columns};
    norm.centered = true;
    x = program_.Emit(norm, {x, vector("weight")}, Local(name), shape);
    return program_.Emit(program::AddBias{}, {x, vector("bias")}, Local(name + "_bias"), shape);
}

// Rotates the first or last columns of an indexer's heads.
ValueId Builder::RotateIndex(ValueId x, const std::string& name) {
    const Indexer& m = hyper_.indexer;
    if (hyper_.latent.IsPlain(layer_) || hyper_.latent.rope == 0) return x;
    const model::Rope& rope = hyper_.ropes.Of(false, options_.context);
    program::Rope rotates{m.dim, hyper_.latent.rope,     m.neighbours,
                          1,     rope.inverse_frequency, rope.magnitude};
    rotates.last = TraitsOf(hyper_.architecture).index_last;
    return program_.EmitLike(std::move(rotates), {x, positions_}, Local(name), x);
}

ValueId Builder::IndexQuery(ValueId x, ValueId latent) {
    const Indexer& m = hyper_.indexer;
    const int64_t columns = m.heads * m.dim;
    if (!m.from_hidden) {
        return RotateIndex(ToAll(latent, "indexer.attn_q_b", columns, hyper_.latent.q_rank),
                           "index_q");
    }
    const ValueId normed = NormIndex(x, "indexer.q_norm", hyper_.hidden);
    const ValueId q = ToAll(normed, "indexer.attn_q_b", columns, hyper_.hidden);
    return RotateIndex(ScaleHeads(q, "indexer.temperature", {0, m.heads}, m.heads), "index_q");
}

// Multiplies head h of x by weight[h] * log(position + 1) + bias[h]; x has the heads `heads` of
// all.
ValueId Builder::ScaleHeads(ValueId x, const std::string& tensor, const Span& heads,
                            int64_t all_heads) {
    const auto vector = [&](const std::string& part) {
        return Weight(Tensor(tensor) + "." + part, {heads, {}, all_heads, 0});
    };
    return program_.EmitLike(program::ScaleHeads{},
                             {x, positions_, vector("weight"), vector("bias")},
                             Local(tensor + ".scaled"), x);
}

// The positions that the rows attend to; kNoValue: all earlier ones. Every tensor rank computes the
// whole indexer from the same rows, so all choose the same positions.
ValueId Builder::Chosen(ValueId x, ValueId latent) {
    const Indexer& m = hyper_.indexer;
    if (!UsesIndexer()) return program::kNoValue;
    if (!m.IsOwn(layer_)) return chosen_;
    ValueId key = ToAll(x, "indexer.attn_k", m.dim, hyper_.hidden);
    key = RotateIndex(NormIndex(key, "indexer.k_norm", m.dim), "index_key");
    const bool windows = m.stride > 1;
    if (windows) key = MeansOfWindows(key, x, "indexer_compressor", m.stride, false);
    const ValueId q = IndexQuery(x, latent);
    const Shape shape = program_.value(key).shape;
    const ValueId weights = ToAll(x, "indexer.proj", m.heads, hyper_.hidden);
    const ValueId cache = RowCache("index_cache", m.dim, m.stride);
    chosen_ = program_.Emit(program::IndexTopK{m.stride, windows}, {q, key, weights, cache},
                            Local("chosen"), {shape[0], m.top + m.stride - 1});
    program_.values[static_cast<size_t>(chosen_)].dtype = DType::kI32;
    return chosen_;
}

// The blocks that this layer's attention reads, for this rank's KV heads; kNoValue: all earlier
// ones. Every tensor rank caches the index keys.
ValueId Builder::ChosenBlocks(ValueId x) {
    const Indexer& m = hyper_.indexer;
    if (m.block == 0 || !UsesIndexer() || !HasBlockIndexer(layer_)) return program::kNoValue;
    NeedNoIndexer();
    const model::Rope& rope = hyper_.ropes.Of(false, options_.context);
    const auto heads = [&](const std::string& name, const Span& rows, int64_t all) {
        const ValueId part = MatMul(x, Tensor("indexer." + name + "_proj"), RowsOf(rows, all),
                                    {all > m.dim ? Cut::kRows : Cut::kNone}, false,
                                    Local("indexer." + name + "_proj"));
        const ValueId normed = Norm(part, "indexer." + name + "_norm", m.dim);
        return program_.EmitLike(program::Rope{m.dim, Heads().rotary_dim, false, 1,
                                               rope.inverse_frequency, rope.magnitude},
                                 {normed, positions_}, Local("index_" + name), normed);
    };
    const Span own = KvHeads();
    const ValueId q = heads("q", {own.begin * m.dim, own.end * m.dim}, m.heads * m.dim);
    const ValueId key = heads("k", {0, m.dim}, m.dim);
    const Shape shape{program_.value(q).shape[0], own.size() * (m.top / m.block)};
    const ValueId chosen =
        program_.Emit(program::IndexBlocks{own.size(), m.block, m.local},
                      {q, key, RowCache("index_cache", m.dim)}, Local("chosen"), shape);
    program_.values[static_cast<size_t>(chosen)].dtype = DType::kI32;
    return chosen;
}

bool Builder::HasBlockIndexer(int64_t layer) const {
    if (!hyper_.indexer.own.empty()) return hyper_.indexer.IsOwn(layer);
    return source_.FindTensor(fmt::format("blk.{}.indexer.q_proj.weight", layer)) != nullptr;
}

// Cache pages with one row per `stride` positions, of the type of keys, identical on every tensor
// rank.
ValueId Builder::RowCache(const std::string& name, int64_t columns, int64_t stride) {
    program::Value state;
    state.name = Local(name);
    state.dtype = options_.kv_dtype.k;
    state.shape = {1, columns};
    state.storage = Storage::kState;
    state.row_positions = program::RowPositions(stride);
    return program_.AddValue(std::move(state));
}

// Rotates the columns of latent attention that carry the position.
ValueId Builder::RotateLatent(ValueId x) {
    const Latent& m = hyper_.latent;
    if (!m.rotates || m.IsPlain(layer_)) return x;
    const program::Value value = program_.value(x);
    const model::Rope& rope = hyper_.ropes.Of(false, options_.context);
    return program_.Emit(program::Rope{m.rope, m.rope, !TraitsOf(hyper_.architecture).latent_halves,
                                       1, rope.inverse_frequency, rope.magnitude},
                         {x, positions_}, value.name + ".rope", value.shape);
}

// The cached values of a row: its latent as k, its rotated key as v. A layer that reads another
// layer's cache returns that one's. A layer without rotated columns caches zeros for them, so that
// all caches have the same shape.
Builder::KeysAndValues& Builder::Latents(ValueId x) {
    const Latent& m = hyper_.latent;
    const int64_t source = hyper_.KvLayer(layer_);
    if (source == layer_) {
        const bool plain = m.IsPlain(layer_);
        const int64_t columns = m.rank + (plain ? 0 : m.rope);
        const ValueId all = ToAll(x, "attn_kv_a_mqa", columns, hyper_.hidden);
        const bool keyed = m.rope > 0;
        const ValueId latent = NormWithin(keyed ? Pick(all, 1, 0, m.rank, "latent") : all,
                                          "attn_kv_a_norm", m.rank, m.eps);
        const ValueId key = !keyed  ? program::kNoValue
                            : plain ? Scale(Pick(latent, 1, 0, m.rope, "key"), 0)
                                    : RotateLatent(Pick(all, 1, m.rank, m.rope, "key"));
        kv_[source] = {latent, key, {}};
    }
    KeysAndValues& kv = kv_[source];
    if (options_.cache && kv.caches.empty()) {
        kv.caches = {RowCache("latent_cache", m.rank + m.rope)};
    }
    return kv;
}

ValueId Builder::CachedMeans(ValueId q_latent, ValueId q_key, ValueId x, ValueId query_latent) {
    const KeysAndValues& kv = Latents(x);
    program::LatentAttention attention{shard_.heads.size(), hyper_.attention_scale};
    attention.sinks = Has("attn_sinks.weight");
    attention.keyed = kv.v != program::kNoValue;
    std::vector<ValueId> inputs = {q_latent, kv.k};
    if (attention.keyed) inputs = {q_latent, q_key, kv.k, kv.v};
    if (attention.sinks) {
        inputs.push_back(Weight(Tensor("attn_sinks.weight"), {shard_.heads, {}, hyper_.heads, 0}));
    }
    const ValueId chosen = Chosen(x, query_latent);
    if (chosen != program::kNoValue) inputs.push_back(chosen);
    inputs.push_back(kv.caches[0]);
    return program_.EmitLike(attention, std::move(inputs), Local("attention"), q_latent);
}

// In training, the op is attention with one KV head: the key is the latent and the rotated columns,
// the value the latent and zeros.
ValueId Builder::TrainedMeans(ValueId q_latent, ValueId q_key, ValueId x) {
    const Latent& m = hyper_.latent;
    NeedNoIndexer();
    const KeysAndValues& kv = Latents(x);
    program::Attention attention;
    attention.heads = attention.group = shard_.heads.size();
    attention.kv_heads = 1;
    attention.head_dim = m.rank + m.rope;
    attention.scale = hyper_.attention_scale;
    const ValueId q = PadHeads(q_latent, q_key, attention.heads, attention.head_dim, "attention_q");
    const ValueId k = PadHeads(kv.k, kv.v, 1, attention.head_dim, "attention_k");
    const ValueId v = PadHeads(kv.k, program::kNoValue, 1, attention.head_dim, "attention_v");
    const ValueId all = program_.EmitLike(attention, {q, k, v}, Local("attention"), q);
    return Pick(all, attention.heads, 0, m.rank, "attention_means");
}

// Each head's columns of x, then of `rest` (or none), then zeros.
ValueId Builder::PadHeads(ValueId x, ValueId rest, int64_t heads, int64_t size,
                          const std::string& name) {
    std::vector<ValueId> inputs = {x};
    if (rest != program::kNoValue) inputs.push_back(rest);
    const Shape shape{program_.value(x).shape[0], heads * size};
    return program_.Emit(program::PadHeads{heads, 0}, std::move(inputs), Local(name), shape);
}

// The choice of positions has no gradient, so training needs sequences that the indexer never cuts.
void Builder::NeedNoIndexer() {
    if (options_.cache || !UsesIndexer()) return;
    Fail(MakeError(ErrorCode::kUnsupported,
                   "{}: its indexer chooses {} positions per row, and the choice has no gradient; "
                   "train it with sequences of at most as many tokens (--seq-len {})",
                   source_.name(), hyper_.indexer.top, hyper_.indexer.top));
}

// Uses the absorbed form: the unrotated part of a query is multiplied by its head's key matrix, so
// that scores are dot products with the cached latent; the result, a weighted mean of latents, is
// multiplied by its head's value matrix. The cache holds rank + rope columns per position,
// identical on every tensor rank.
ValueId Builder::LatentAttention(ValueId x) {
    const Latent& m = hyper_.latent;
    const int64_t heads = shard_.heads.size();
    const ValueId query_latent = QueryLatent(x);
    ValueId q = Tempered(LatentQuery(x, query_latent));
    if (m.scales) q = ScaleHeads(q, "attn_temperature", shard_.heads, hyper_.heads);
    const bool plain = m.IsPlain(layer_);
    const int64_t nope = m.nope + (plain ? m.rope : 0);
    const bool keyed = m.rope > 0;
    const ValueId q_key = keyed ? RotateLatent(Pick(q, heads, plain ? 0 : m.nope, m.rope, "q_key"))
                                : program::kNoValue;
    const bool turned = !options_.cache && !Has("attn_k_b.weight");
    const ValueId q_latent =
        EachHead(keyed ? Pick(q, heads, 0, nope, "q_plain") : q,
                 HeadMatrices("attn_k_b", m.rank, nope, true), "q_latent", turned);
    const ValueId means = options_.cache ? CachedMeans(q_latent, q_key, x, query_latent)
                                         : TrainedMeans(q_latent, q_key, x);
    ValueId values = EachHead(means, HeadMatrices("attn_v_b", m.value, m.rank, false), "values");
    if (Has("attn_gate.weight")) values = GateHeads(values, x, program::RowGate::kSigmoid);
    const Span columns{shard_.heads.begin * m.value, shard_.heads.end * m.value};
    return FromColumns(values, "attn_output", ColumnsOf(columns, hyper_.heads * m.value), m.value);
}

}  // namespace weft::model
