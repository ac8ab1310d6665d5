#include "model/builder.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "base/printable.h"
#include "model/architecture.h"
#include "model_files/draft_source.h"
#include "model_files/lora/adapted_source.h"
#include "model_files/score_head.h"

namespace weft::model {

using program::Cut;
using program::kNoValue;
using program::kOutputs;
using program::kTokens;
using program::Shape;
using program::Storage;
using program::ValueId;

namespace {

// Whether `tensor` belongs to the indexer of sparse attention.
bool IsOfIndexer(std::string_view tensor) {
    constexpr std::string_view kTensors[] = {
        "indexer_compressor_ape.weight", "indexer_compressor_gate.weight",
        "indexer.attn_k.weight",         "indexer.attn_q_b.weight",
        "indexer.k_norm.bias",           "indexer.k_norm.weight",
        "indexer.k_proj.weight",         "indexer.proj.weight",
        "indexer.q_norm.weight",         "indexer.q_proj.weight",
        "indexer.q_norm.bias",           "indexer.temperature.bias",
        "indexer.temperature.weight"};
    return std::ranges::find(kTensors, tensor) != std::end(kTensors);
}

// Some files have these tensors even in layers that read another layer's KV cache.
bool IsOfKeysAndValues(std::string_view tensor) {
    return tensor == "attn_k.weight" || tensor == "attn_v.weight" || tensor == "attn_k_norm.weight";
}

// Whether the text model may do without a tensor outside of its layers that a rank does not read:
// another stage reads it, or it belongs to another modality or to prediction layers.
bool IsOfEnds(std::string_view name, const Hyper& hyper) {
    constexpr std::string_view kOthers[] = {"v.", "a.", "mm.", "mtp.", "nextn."};
    constexpr std::string_view kRead[] = {"token_embd.weight",        "output.weight",
                                          "token_embd.scale",         "output.scale",
                                          "output_norm.weight",       "rope_freqs.weight",
                                          "rope_factors_long.weight", "rope_factors_short.weight"};
    constexpr std::string_view kByLayer[] = {
        "per_layer_token_embd.weight", "per_layer_model_proj.weight", "per_layer_proj_norm.weight",
        "altup_proj.weight", "altup_unembd_proj.weight"};
    const auto begins = [&](std::string_view begin) { return name.starts_with(begin); };
    const auto is_in = [&](const auto& names) {
        return std::ranges::find(names, name) != std::end(names);
    };
    if (std::ranges::any_of(kOthers, begins) || is_in(kRead)) return true;
    if (model_files::IsOfScoreHead(name)) return true;
    if (name == "output.bias") return true;
    if (name == "output_norm.bias") return hyper.end_biases;
    if (name == "position_embd.weight" || name == "token_embd_proj.weight") return true;
    if (begins("output_proj")) return true;
    if (begins("token_embd_norm.")) {
        return TraitsOf(hyper.architecture).norms_embedding;
    }
    if (hyper.encoder && begins("token_types.")) return true;
    if (hyper.windowing.streams > 0 && begins("output_hc_")) return true;
    return hyper.layer_columns > 0 && is_in(kByLayer);
}

// Columns of the embedding. In OPT 350M, projections lead from them to the residual stream and
// back.
int64_t EmbeddingColumns(const model_files::ModelSource& source, const Hyper& hyper) {
    const auto* const projection = source.FindTensor("token_embd_proj.weight");
    return projection == nullptr ? hyper.hidden : projection->cols;
}

// Whether a norm ends each layer, so that no other norm follows the last one.
bool EndInNorms(const model_files::ModelSource& source, int64_t layers) {
    const std::string last = fmt::format("blk.{}.layer_output_norm.weight", layers - 1);
    return source.FindTensor(last) != nullptr;
}

// The layer of a tensor "blk.3.NAME", and NAME. -1: another tensor.
std::pair<int64_t, std::string_view> LayerOf(std::string_view name) {
    int64_t layer = -1;
    if (!name.starts_with("blk.")) return {-1, name};
    const char* const end = name.data() + name.size();
    const auto [dot, error] = std::from_chars(name.data() + 4, end, layer);
    if (error != std::errc() || dot == end || *dot != '.' || layer < 0) return {-1, name};
    return {layer, {dot + 1, end}};
}

}  // namespace

Builder::Builder(const Hyper& hyper, const Shard& shard, const model_files::ModelSource& source,
                 const BuildOptions& options)
    : hyper_(hyper), shard_(shard), source_(source), options_(options), own_layers_(shard.layers) {
    tokens_ = Input("tokens", kTokens);
    positions_ = Input("positions", kTokens);
    output_rows_ = Input("output_rows", kOutputs);
}

ValueId Builder::Input(const char* name, int64_t rows) {
    program::Value value;
    value.name = name;
    value.dtype = DType::kI32;
    value.shape = {rows};
    value.storage = Storage::kInput;
    return program_.AddValue(std::move(value));
}

ValueId Builder::Enter() {
    const Shape shape{kTokens, hyper_.hidden};
    if (!shard_.first_stage()) {
        RecvShared();
        const ValueId x = program_.Emit(program::Recv{shard_.rank - shard_.layout.tp}, {},
                                        "received", {kTokens, hyper_.stream_columns()});
        LayerInputs();
        return x;
    }
    embedded_ = Placed(Embedded("token_embd", "embedded"));
    LayerInputs();
    return Spread(embedded_);
}

ValueId Builder::Placed(ValueId x) {
    const auto* const info = source_.FindTensor("position_embd.weight");
    if (info != nullptr) x = Add(x, Positions(*info));
    if (hyper_.token_types > 0) x = Add(x, Types());
    const bool normed = TraitsOf(hyper_.architecture).norms_embedding;
    return normed ? Norm(x, "token_embd_norm", hyper_.hidden) : x;
}

ValueId Builder::Types() {
    const ValueId types = Input("token_types", kTokens);
    const ValueId table =
        Weight("token_types.weight",
               {{0, hyper_.token_types}, {0, hyper_.hidden}, hyper_.token_types, hyper_.hidden});
    return program_.Emit(program::Embedding{}, {types, table}, "types", {kTokens, hyper_.hidden});
}

ValueId Builder::Positions(const model_files::TensorInfo& info) {
    if (info.rows < hyper_.context) {  // later positions would have no vector
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: position_embd.weight has vectors for {} positions; expected {}, the "
                       "model's context",
                       source_.name(), info.rows, hyper_.context));
    }
    const int64_t hidden = hyper_.hidden;
    const ValueId table =
        Weight("position_embd.weight", {{0, info.rows}, {0, hidden}, info.rows, hidden});
    return program_.Emit(program::Embedding{}, {positions_, table}, "positioned",
                         {kTokens, hidden});
}

ValueId Builder::Embedded(const std::string& tensor, const std::string& name) {
    ValueId x = LookUp(tensor, name, shard_.vocab, hyper_.vocab);
    if (source_.FindTensor("token_embd_proj.weight") != nullptr) {
        const int64_t columns = program_.value(x).shape[1], hidden = hyper_.hidden;
        x = MatMul(x, "token_embd_proj", {{0, hidden}, {0, columns}, hidden, columns}, {}, false,
                   name + ".projected");
    }
    return Scale(x, hyper_.embedding_scale);
}

ValueId Builder::LookUp(const std::string& tensor, const std::string& name, const Span& rows,
                        int64_t all) {
    const int64_t columns = EmbeddingColumns(source_, hyper_);
    const ValueId table = Weight(tensor + ".weight", {rows, {0, columns}, all, columns});
    return AllReduce(
        program_.Emit(program::Embedding{rows.begin}, {tokens_, table}, name, {kTokens, columns}));
}

ValueId Builder::Layers(ValueId (*build)(Builder&, ValueId), ValueId x) {
    std::vector<int64_t> ends = ReadsBefore(own_layers_.end);
    std::erase_if(ends, [&](int64_t layer) { return layer <= own_layers_.begin; });
    ends.push_back(own_layers_.end);
    shard_.layers.end = own_layers_.begin;
    for (const int64_t end : ends) {
        shard_.layers = {shard_.layers.end, end};
        reads_.try_emplace(shard_.layers.begin, x);
        x = build(*this, x);
    }
    // The input of a layer behind the last one; also, where a plan builds some of the layers, a
    // stand-in for the input of others.
    for (const int64_t layer : ReadsBefore(INT64_MAX)) reads_.try_emplace(layer, x);
    shard_.layers = own_layers_;
    return x;
}

// ---- Per-layer embeddings, and keys and values that several layers read (Gemma 4) ---------------
//
// A stage receives the embedded tokens, from which it computes its layers' inputs, and the keys and
// values of earlier layers that its layers read, which it keeps in its own caches.

// For all layers of the stage side by side: the normed projection of the embedding, plus a row of
// the per-layer table.
void Builder::LayerInputs() {
    const Span layers = shard_.layers;
    if (hyper_.layer_columns == 0 || layers.size() == 0) return;
    const int64_t columns = hyper_.layer_columns, all = columns * hyper_.layers;
    const Span own{columns * layers.begin, columns * layers.end};
    const Shape shape{kTokens, own.size()};
    const model_files::TensorInfo* info = source_.FindTensor("per_layer_token_embd.weight");
    const int64_t block = info == nullptr ? 1 : Info(info->dtype).block_elements;
    if (own.begin % block != 0 || own.end % block != 0) {
        return Fail(MakeError(ErrorCode::kUnsupported,
                              "{}: layers {} to {} begin or end inside a block of {} columns of "
                              "per_layer_token_embd.weight, which a stage cannot divide; use --pp "
                              "1",
                              source_.name(), layers.begin, layers.end - 1, block));
    }
    // (Gemma 3n's table lacks the last tokens, which no text has.)
    const int64_t rows = info == nullptr ? hyper_.vocab : info->rows;
    const Span held{std::min(shard_.vocab.begin, rows), std::min(shard_.vocab.end, rows)};
    const ValueId table = Weight("per_layer_token_embd.weight", {held, own, rows, all});
    const ValueId looked_up =
        Scale(AllReduce(program_.Emit(program::Embedding{held.begin}, {tokens_, table},
                                      "per_layer_embedded", shape)),
              std::sqrt(static_cast<float>(columns)));
    const ValueId projected = Scale(MatMul(embedded_, "per_layer_model_proj", RowsOf(own, all), {},
                                           false, "per_layer_projected"),
                                    1.0f / std::sqrt(static_cast<float>(hyper_.hidden)));
    const ValueId norm = Weight("per_layer_proj_norm.weight", {{0, columns}, {}, columns, 0});
    const ValueId normed =
        program_.Emit(NormOf(columns), {projected, norm}, "per_layer_normed", shape);
    layer_inputs_ = Scale(Add(normed, looked_up), std::sqrt(0.5f));
}

ValueId Builder::LayerInput() {
    const int64_t columns = hyper_.layer_columns;
    const program::PickColumns pick{1, (layer_ - own_layers_.begin) * columns};
    return program_.Emit(pick, {layer_inputs_}, Local("layer_input"), {kTokens, columns});
}

std::vector<int64_t> Builder::SharedBefore(int64_t layer) const {
    std::set<int64_t> sources;
    const int64_t readers = hyper_.kv_sources.empty() ? hyper_.layers - hyper_.shared_kv : 0;
    const int64_t first = std::max(layer, readers);
    for (int64_t reader = first; reader < hyper_.layers; ++reader) {
        if (const int64_t source = hyper_.KvLayer(reader); source < layer) sources.insert(source);
    }
    return {sources.begin(), sources.end()};
}

void Builder::RecvShared() {
    const program::Recv recv{shard_.rank - shard_.layout.tp};
    if (hyper_.layer_columns > 0) {
        embedded_ = program_.Emit(recv, {}, "received_embedded", {kTokens, hyper_.hidden});
    }
    for (const int64_t layer : SharedBefore(shard_.layers.begin)) {
        BeginLayer(layer);
        const int64_t heads = KvHeads().size();
        KeysAndValues& kv = kv_[layer];
        if (const Latent& m = hyper_.latent; m.rank > 0) {
            kv.k = program_.Emit(recv, {}, Local("latent"), {kTokens, m.rank});
            kv.v = program_.Emit(recv, {}, Local("key"), {kTokens, m.rope});
            continue;
        }
        kv.k = program_.Emit(recv, {}, Local("k"), {kTokens, heads * Heads().head_dim});
        kv.v = program_.Emit(recv, {}, Local("v"), {kTokens, heads * Heads().ValueDim()});
    }
    for (const int64_t layer : ReadsBefore(shard_.layers.begin)) {
        BeginLayer(layer);
        reads_[layer] = program_.Emit(recv, {}, Local("input"), {kTokens, hyper_.hidden});
    }
    layer_ = -1;
}

void Builder::SendShared() {
    const program::Send send{shard_.rank + shard_.layout.tp};
    if (hyper_.layer_columns > 0) program_.ops.push_back({send, {embedded_}, {}});
    for (const int64_t layer : SharedBefore(shard_.layers.end)) {
        program_.ops.push_back({send, {kv_[layer].k}, {}});
        program_.ops.push_back({send, {kv_[layer].v}, {}});
    }
    for (const int64_t layer : ReadsBefore(shard_.layers.end)) {
        program_.ops.push_back({send, {reads_.at(layer)}, {}});
    }
}

ValueId Builder::SharedAttention(ValueId q) {
    const KeysAndValues& kv = kv_[hyper_.KvLayer(layer_)];
    return Attention(q, kv.k, kv.v);
}

// ---- Ends ---------------------------------------------------------------------------------------

void Builder::Leave(ValueId x) {
    layer_ = -1;
    if (shard_.last_stage()) {
        if (options_.outputs == Outputs::kVectors) return Vectors(x);
        if (options_.outputs != Outputs::kLogits) Hidden(x);
        if (options_.outputs != Outputs::kHidden) Logits(x);
        return;
    }
    SendShared();
    program_.ops.push_back({program::Send{shard_.rank + shard_.layout.tp}, {x}, {}});
    if (shard_.rank == 0 && SendsLogits()) {
        const int sender = (shard_.layout.pp - 1) * shard_.layout.tp;
        if (options_.outputs == Outputs::kHidden) {
            program_.Emit(program::Recv{sender}, {}, "hidden", {kTokens, hyper_.hidden});
        } else {
            program_.Emit(program::Recv{sender}, {}, "logits", {kOutputs, hyper_.vocab});
        }
    }
}

void Builder::Hidden(ValueId x) {
    const bool sent = shard_.layout.pp > 1;
    if (sent && options_.outputs == Outputs::kBoth) {
        return Fail(MakeError(ErrorCode::kUnsupported,
                              "logits and hidden states together need a single pipeline stage"));
    }
    const ValueId hidden = FinalNorm(x, "hidden");
    if (sent && shard_.tensor_rank == 0) {
        program_.ops.push_back({program::Send{0}, {hidden}, {}});
    }
}

ValueId Builder::FinalNorm(ValueId x, const std::string& name) {
    if (!EndInNorms(source_, hyper_.layers)) {
        return NormBy(MergeLast(x), OutputNorm(), "weight", hyper_.hidden, name);
    }
    program_.values[static_cast<size_t>(x)].name = name;
    return x;
}

void Builder::Vectors(ValueId x) {
    x = program_.Emit(program::SelectRows{}, {x, output_rows_}, "selected",
                      {kOutputs, hyper_.stream_columns()});
    const model_files::TensorInfo* head = source_.FindTensor("cls.output.weight");
    const ValueId hidden = FinalNorm(x, head == nullptr ? "vectors" : "hidden");
    if (head == nullptr) return;
    const bool bias = source_.FindTensor("cls.output.bias") != nullptr;
    MatMul(hidden, "cls.output", RowsOf({0, head->rows}, head->rows), {}, bias, "vectors");
}

void Builder::Logits(ValueId x) {
    if (model_files::HasScoreHead(source_)) {
        return Fail(MakeError(ErrorCode::kUnsupported,
                              "{}: tensor cls.output.weight makes scores, and the model writes no "
                              "text: 'weft serve' answers /v1/rerank and /v1/score with it",
                              source_.name()));
    }
    if (hyper_.encoder) {
        return Fail(MakeError(ErrorCode::kUnsupported,
                              "{}: architecture '{}' is an encoder, which makes vectors and writes "
                              "no text: 'weft serve' answers /v1/embeddings with it",
                              source_.name(), hyper_.architecture));
    }
    x = program_.Emit(program::SelectRows{}, {x, output_rows_}, "selected",
                      {kOutputs, hyper_.stream_columns()});
    x = MergeLast(x);
    if (!EndInNorms(source_, hyper_.layers)) x = Norm(x, OutputNorm(), hyper_.hidden);
    if (source_.FindTensor("output_proj.weight") != nullptr) {
        const int64_t columns = EmbeddingColumns(source_, hyper_), hidden = hyper_.hidden;
        x = MatMul(x, "output_proj", {{0, columns}, {0, hidden}, columns, hidden}, {},
                   Has("output_proj.bias"), "output_proj");
    }
    if (source_.FindTensor("output_proj_norm.weight") != nullptr) {  // ModernBERT's decoders
        x = program_.EmitLike(program::Activate{Ungated::kGelu}, {x}, "output_proj.act", x);
        x = Norm(x, "output_proj_norm", hyper_.hidden);
    }
    ToLogits(x, OutputMatrix(), "logits");
}

void Builder::ToLogits(ValueId x, const std::string& tensor, const std::string& name) {
    // `name` goes to the last value of the chain.
    const bool gather = shard_.layout.tp > 1;
    const bool scaled = hyper_.logit_scale != 1, capped = hyper_.logit_cap != 0;
    const std::string end = gather ? ".part" : "";
    const std::string raw = name + (scaled || capped ? ".raw" : "") + end;
    const bool bias = tensor == OutputMatrix() && source_.FindTensor("output.bias") != nullptr;
    const int64_t columns = program_.value(x).shape[1];
    ValueId logits = MatMul(x, tensor, {shard_.vocab, {0, columns}, hyper_.vocab, columns},
                            {Cut::kRows}, false, bias ? raw + ".unbiased" : raw);
    if (bias) {
        const ValueId b = Weight("output.bias", {shard_.vocab, {}, hyper_.vocab, 0});
        logits = program_.EmitLike(program::AddBias{}, {logits, b}, raw, logits);
    }
    const Shape part = program_.value(logits).shape;
    if (scaled) {
        logits = program_.Emit(program::Scale{hyper_.logit_scale}, {logits},
                               name + (capped ? ".scaled" : "") + end, part);
    }
    if (capped) {
        logits = program_.Emit(program::SoftCap{hyper_.logit_cap}, {logits}, name + end, part);
    }
    if (gather) {
        logits = program_.Emit(
            program::AllGather{program::Group::kTensor, shard_.vocab_parts, shard_.vocab.begin},
            {logits}, name, {kOutputs, hyper_.vocab});
    }
    if (shard_.layout.pp > 1 && shard_.tensor_rank == 0 && SendsLogits()) {
        program_.ops.push_back({program::Send{0}, {logits}, {}});
    }
}

void Builder::BeginLayer(int64_t layer) {
    layer_ = layer;
}

std::string Builder::OutputNorm() const {
    const bool lfm = hyper_.recurrent.kind == Recurrent::Kind::kShortConv;
    return lfm && !Has("output_norm.weight") ? "token_embd_norm" : "output_norm";
}

program::RmsNorm Builder::NormOf(int64_t group) const {
    program::RmsNorm norm{hyper_.rms_eps, group};
    norm.centered = hyper_.layer_norm;
    return norm;
}

ValueId Builder::Norm(ValueId x, const std::string& weight, int64_t group) {
    return NormBy(x, weight, "weight", group);
}

ValueId Builder::NormBy(ValueId x, const std::string& weight, const std::string& part,
                        int64_t group, std::string name) {
    const std::string end = part.empty() ? "" : "." + part;
    const bool plain = part.empty() || part == "weight";
    if (name.empty()) name = Local(plain ? weight : weight + "_" + part);
    if (hyper_.plain_norms) {
        program::RmsNorm norm = NormOf(group);
        norm.plain = true;
        return program_.EmitLike(norm, {x}, std::move(name), x);
    }
    const ValueId w = Weight(Tensor(weight) + end, {{0, group}, {}, group, 0});
    const Shape shape = program_.value(x).shape;
    const std::string bias = Tensor(weight) + ".bias";
    const bool biased = plain && hyper_.end_biases && source_.FindTensor(bias) != nullptr;
    const ValueId y =
        program_.Emit(NormOf(group), {x, w}, biased ? name + ".unbiased" : name, shape);
    if (!biased) return y;
    return program_.Emit(program::AddBias{}, {y, Weight(bias, {{0, group}, {}, group, 0})}, name,
                         shape);
}

// On one rank and in training, a plain norm would do, but the sums in float64 make results
// independent of the cuts.
Builder::QueryAndKey Builder::NormHeads(const QueryAndKey& x) {
    const int64_t q_columns = Heads().heads * Heads().head_dim;
    const int64_t k_columns = Heads().kv_heads * Heads().head_dim;
    if (!options_.cache && shard_.layout.tp == 1) {
        return {Norm(x.q, "attn_q_norm", q_columns), Norm(x.k, "attn_k_norm", k_columns)};
    }
    // If several ranks hold a KV head, only the rank with the group's first query head adds it.
    const int64_t group = Heads().heads / Heads().kv_heads;
    const Span queries = QueryHeads();
    const Span own{(queries.begin + group - 1) / group, (queries.end + group - 1) / group};
    const Span mine = Columns(own), held = Columns(KvHeads());
    program::SumSquares sum;
    sum.columns = {{0, Columns(queries).size()}, {mine.begin - held.begin, mine.size()}};
    if (mine.size() == 0) sum.columns[1] = {};
    ValueId squares =
        program_.Emit(std::move(sum), {x.q, x.k}, Local("attn_qk_squares"), {kTokens, 2});
    if (shard_.layout.tp > 1) {
        if (HidesCuts()) SetWide(squares);
        squares = AllReduce(squares);
    }
    const auto norm = [&](ValueId part, const std::string& weight, const Span& columns,
                          int64_t whole, int64_t square) {
        const ValueId w = Weight(Tensor(weight) + ".weight", {columns, {}, whole, 0});
        const Shape shape = program_.value(part).shape;
        return program_.Emit(program::RmsNorm{hyper_.rms_eps, columns.size(), whole, square},
                             {part, w, squares}, Local(weight), shape);
    };
    return {norm(x.q, "attn_q_norm", Columns(queries), q_columns, 0),
            norm(x.k, "attn_k_norm", held, k_columns, 1)};
}

ValueId Builder::ToHeads(ValueId x, const std::string& weight, bool bias) {
    const int64_t all = Heads().heads * Heads().head_dim;
    return FromHome(x, weight, HomeOfHeads(weight, 0, all), Columns(QueryHeads()), {Cut::kRows},
                    bias);
}

ValueId Builder::ToKvHeads(ValueId x, const std::string& weight, bool bias) {
    const HeadShape shape = Heads();
    const bool values = weight == "attn_v";
    const int64_t keys = shape.kv_heads * shape.head_dim;
    const int64_t all = values ? shape.kv_heads * shape.ValueDim() : keys;
    const int64_t begin = shape.heads * shape.head_dim + (values ? keys : 0);
    const Home home = HomeOfHeads(weight, begin, all);
    const Span columns = values ? ValueColumns(KvHeads()) : Columns(KvHeads());
    // If this layer's KV heads differ from those of the shard plan, any of them may be replicated.
    const bool planned = shape.kv_heads == hyper_.kv_heads && shape.heads == hyper_.heads;
    const bool shared = planned ? shard_.kv_replicated : true;
    return FromHome(x, weight, home, columns, {Cut::kRows, shared ? home.all_rows : 0}, bias);
}

ValueId Builder::Clamped(ValueId x) {
    if (hyper_.clamp == 0) return x;
    const program::Value value = program_.value(x);
    return program_.Emit(program::Activate{Ungated::kClamp, {.above = hyper_.clamp}}, {x},
                         value.name + ".clamped", value.shape);
}

ValueId Builder::ToFfn(ValueId x, const std::string& weight) {
    return FromHome(x, weight, HomeOfFfn(weight), FfnColumns(), {Cut::kRows}, false);
}

ValueId Builder::ToAll(ValueId x, const std::string& weight, int64_t rows, int64_t cols) {
    return MatMul(x, Tensor(weight), {{0, rows}, {0, cols}, rows, cols}, {}, Has(weight + ".bias"),
                  Local(weight));
}

ValueId Builder::FromHeads(ValueId x, const std::string& weight) {
    const int64_t dim = Heads().ValueDim();
    return FromColumns(x, weight, ColumnsOf(ValueColumns(QueryHeads()), Heads().heads * dim), dim);
}

ValueId Builder::FromFfn(ValueId x, const std::string& weight) {
    return FromColumns(x, weight, ColumnsOf(FfnColumns(), AllFfn()), ColumnUnit(AllFfn()));
}

ValueId Builder::Rope(ValueId x, bool neighbours) {
    const program::Value value = program_.value(x);
    const model::Rope& rope = hyper_.ropes.Of(hyper_.IsWindowed(layer_), options_.context);
    return program_.Emit(program::Rope{Heads().head_dim, Heads().rotary_dim, neighbours, 1,
                                       rope.inverse_frequency, rope.magnitude},
                         {x, positions_}, value.name + ".rope", value.shape);
}

ValueId Builder::Tempered(ValueId q) {
    if (hyper_.temperature.beta == 0) return q;
    const program::Value value = program_.value(q);
    return program_.Emit(program::ScaleByPosition{hyper_.temperature}, {q, positions_},
                         value.name + ".tempered", value.shape);
}

ValueId Builder::Attention(ValueId q, ValueId k, ValueId v, ValueId chosen) {
    program::Attention attributes;
    const HeadShape shape = Heads();
    attributes.heads = QueryHeads().size();
    attributes.kv_heads = KvHeads().size();
    attributes.head_dim = shape.head_dim;
    attributes.value_dim = shape.v_head_dim;
    attributes.first_head = QueryHeads().begin;
    attributes.first_kv_head = KvHeads().begin;
    attributes.group = shape.heads / shape.kv_heads;
    attributes.scale = hyper_.attention_scale != 0
                           ? hyper_.attention_scale
                           : 1.0f / std::sqrt(static_cast<float>(Heads().head_dim));
    attributes.soft_cap = hyper_.attention_cap;
    attributes.ahead = hyper_.SeesAhead(layer_);
    if (hyper_.IsWindowed(layer_)) {
        (hyper_.chunked ? attributes.chunk : attributes.window) = hyper_.window;
    }
    if (!hyper_.slopes.empty()) {
        const auto first = hyper_.slopes.begin() + attributes.first_head;
        attributes.slopes.assign(first, first + attributes.heads);
    }
    std::vector<ValueId> inputs = {q, k, v};
    attributes.sinks = Has("attn_sinks.weight");
    if (attributes.sinks) {
        inputs.push_back(Weight(Tensor("attn_sinks.weight"), {QueryHeads(), {}, shape.heads, 0}));
    }
    if (chosen != kNoValue) {
        attributes.block = hyper_.indexer.block;
        inputs.push_back(chosen);
    }
    const int64_t source = hyper_.KvLayer(layer_);
    KeysAndValues& kv = kv_.try_emplace(source, KeysAndValues{k, v, {}}).first->second;
    // In training, narrow values get columns of zeros, because values are as wide as keys.
    const bool pads = !options_.cache && shape.ValueDim() < shape.head_dim;
    if (pads) {
        attributes.value_dim = 0;
        inputs[2] = PadHeads(v, kNoValue, attributes.kv_heads, shape.head_dim, "attention_v");
    }
    if (kv.caches.empty()) kv.caches = Caches(source);
    inputs.insert(inputs.end(), kv.caches.begin(), kv.caches.end());
    const ValueId out =
        program_.Emit(attributes, std::move(inputs), Local(pads ? "attention_padded" : "attention"),
                      {program_.value(q).shape[0], attributes.heads * attributes.ValueDim()});
    return pads ? Pick(out, attributes.heads, 0, shape.ValueDim(), "attention") : out;
}

// The caches of `layer`, for the current layer's kind of attention.
std::vector<ValueId> Builder::Caches(int64_t layer) {
    std::vector<ValueId> caches;
    if (!options_.cache) return caches;
    const HeadShape shape = Heads();
    for (const char* name : {"k_cache", "v_cache"}) {
        program::Value state;
        state.name = fmt::format("{}l{}.{}", prefix_, layer, name);
        const bool keys = name[0] == 'k';
        state.dtype = keys ? options_.kv_dtype.k : options_.kv_dtype.v;
        state.shape = {KvHeads().size(), keys ? shape.head_dim : shape.ValueDim()};
        state.storage = Storage::kState;
        caches.push_back(program_.AddValue(std::move(state)));
    }
    return caches;
}

ValueId Builder::GateHeads(ValueId a, ValueId x, program::RowGate gate) {
    const model_files::TensorInfo* info = source_.FindTensor(Tensor("attn_gate.weight"));
    const int64_t heads = Heads().heads;
    const int64_t dim = hyper_.latent.rank > 0 ? hyper_.latent.value : Heads().ValueDim();
    const int64_t each = info != nullptr && info->rows == heads * dim ? dim : 1;
    const Slice rows = RowsOf({QueryHeads().begin * each, QueryHeads().end * each}, heads * each);
    const ValueId open =
        MatMul(x, Tensor("attn_gate"), rows, {Cut::kRows}, false, Local("attn_gate"));
    const Shape shape = program_.value(a).shape;
    return program_.Emit(program::GateRows{gate}, {a, open}, Local("attention.gated"), shape);
}

ValueId Builder::Mlp(ValueId x) {
    return HasExperts(source_, layer_) ? Experts(x, x) : DenseMlp(x);
}

ValueId Builder::DenseMlp(ValueId x) {
    if (hyper_.ungated && !hyper_.gates_ungated) {
        return FromFfn(Activated(ToFfn(x, "ffn_up")), "ffn_down");
    }
    const ValueId gate = Sparse(ToFfn(x, "ffn_gate"));
    const ValueId up = ToFfn(x, "ffn_up");
    if (hyper_.gates_ungated) {
        const ValueId product = program_.EmitLike(program::GateRows{program::RowGate::kProduct},
                                                  {up, Activated(gate)}, Local("gated"), up);
        return FromFfn(product, "ffn_down");
    }
    return FromFfn(Gated(gate, up), "ffn_down");
}

ValueId Builder::Gated(ValueId gate, ValueId up, const std::string& name) {
    const Shape shape = program_.value(gate).shape;
    return program_.Emit(GluOf(hyper_.shared_limits), {gate, up}, Local(name), shape);
}

ValueId Builder::Activated(ValueId x) {
    const program::Value value = program_.value(x);
    program::Activate act{*hyper_.ungated};
    if (!hyper_.xielu.empty()) act.xielu = hyper_.xielu[static_cast<size_t>(layer_)];
    return program_.Emit(act, {x}, value.name + ".act", value.shape);
}

program::Glu Builder::GluOf(const std::vector<float>& limits) const {
    const auto layer = static_cast<size_t>(layer_);  // (a draft head comes after the layers)
    program::Glu glu{hyper_.activation, layer < limits.size() ? limits[layer] : 0};
    glu.limits_gate = hyper_.limits_gate && glu.limit != 0;
    return glu;
}

ValueId Builder::Add(ValueId a, ValueId b) {
    const program::Value value = program_.value(b);
    return program_.Emit(program::Add{}, {a, b}, value.name + ".add", value.shape);
}

ValueId Builder::NormApart(ValueId x, const std::string& weight, bool keys) {
    const HeadShape shape = Heads();
    const int64_t heads = keys ? shape.kv_heads : shape.heads;
    const Span own = Columns(keys ? KvHeads() : QueryHeads());
    const ValueId w = Weight(Tensor(weight) + ".weight", {own, {}, heads * shape.head_dim, 0});
    program::RmsNorm norm = NormOf(shape.head_dim);
    norm.apart = true;
    const bool biased = Has(weight + ".bias");
    const std::string name = Local(weight);
    x = program_.EmitLike(norm, {x, w}, biased ? name + ".unbiased" : name, x);
    if (!biased) return x;
    const ValueId bias = Weight(Tensor(weight) + ".bias", {own, {}, heads * shape.head_dim, 0});
    return program_.EmitLike(program::AddBias{}, {x, bias}, name, x);
}

ValueId Builder::NormPlain(ValueId x, int64_t group) {
    const program::Value value = program_.value(x);
    return program_.Emit(program::RmsNorm{hyper_.rms_eps, group, 0, 0, true}, {x},
                         value.name + ".norm", value.shape);
}

ValueId Builder::ScaleBy(ValueId x, const std::string& tensor, size_t part, size_t parts) {
    const std::string name = Tensor(tensor);
    if (source_.FindTensor(name) == nullptr) return x;
    const int64_t dims[] = {static_cast<int64_t>(parts)};
    const model_files::TensorInfo* info = source_.FindNeeded(name, dims);
    read_.insert(info->name);
    const auto values = source_.ReadFloats(*info);
    if (!values.ok() || values->size() != parts) {
        Fail(values.ok()
                 ? MakeError(ErrorCode::kCorrupt, "{}: tensor {} has {} elements; expected {}",
                             source_.name(), name, values->size(), parts)
                 : values.error());
        return x;
    }
    return Scale(x, (*values)[part]);
}

ValueId Builder::NormWithin(ValueId x, const std::string& weight, int64_t group, float eps) {
    const ValueId w = Weight(Tensor(weight) + ".weight", {{0, group}, {}, group, 0});
    program::RmsNorm norm = NormOf(group);
    norm.eps = eps;
    return program_.EmitLike(norm, {x, w}, Local(weight), x);
}

ValueId Builder::Scale(ValueId x, float factor) {
    if (factor == 1) return x;
    const program::Value value = program_.value(x);
    return program_.Emit(program::Scale{factor}, {x}, value.name + ".scaled", value.shape);
}

Result<program::Program> Builder::Finish() && {
    WEFT_TRY(std::move(status_));
    WEFT_TRY(CheckAllUsed());
    WEFT_TRY(program::CheckShapes(program_));
    return std::move(program_);
}

// A tensor that nothing reads is an error: reading it would change the results.
Status Builder::CheckAllUsed() const {
    std::unordered_set<std::string_view> used(read_.begin(), read_.end());
    for (const program::Value& value : program_.values) used.insert(value.slice.name);
    // (With the prediction layers after hyper_.layers.)
    WEFT_ASSIGN(const int64_t layers, source_.meta().IntOr(hyper_.architecture + ".block_count", 1,
                                                           INT32_MAX, hyper_.layers));
    for (const model_files::TensorInfo& info : source_.tensors()) {
        if (used.contains(prefix_ + info.name) || model_files::IsOfAdapter(info.name)) continue;
        if (info.name.starts_with(model_files::kDraftPrefix))
            continue;                                                 // AddSeparateHead checks them
        if (!prefix_.empty() && info.name == "d2t.weight") continue;  // the engine reads it
        const auto [layer, rest] = LayerOf(info.name);
        if (layer >= layers) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: tensor {} belongs to a layer after the {} of {}.block_count, and "
                             "without it the results would be wrong",
                             source_.name(), Printable(info.name), layers, hyper_.architecture);
        }
        const bool head = options_.draft_head && hyper_.draft_head && layer == hyper_.layers &&
                          shard_.last_stage();
        const bool own = layer >= shard_.layers.begin && layer < shard_.layers.end;
        if (layer >= 0 && !own && !head) continue;
        const bool of_ends = IsOfEnds(info.name, hyper_) || info.name == OutputNorm() + ".weight";
        const auto unneeded = [&, layer = layer, rest = rest] {
            if (rest.starts_with("attn_rot_embd") || rest.starts_with("rope_f")) return true;
            if (rest == "ffn_down_exps.bias") return true;  // on one rank of an expert group
            if (rest == "attn_kv_b.weight") return true;  // the same data as attn_k_b and attn_v_b
            if (hyper_.KvLayer(layer) != layer && IsOfKeysAndValues(rest)) return true;
            const bool blocks = hyper_.indexer.block > 0;
            const bool has = blocks ? HasBlockIndexer(layer) : hyper_.indexer.IsOwn(layer);
            const bool indexes = UsesIndexer() && has;
            return hyper_.indexer.top > 0 && !indexes && IsOfIndexer(rest);
        };
        if (layer < 0 ? of_ends : unneeded()) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: tensor {} is not supported for architecture '{}', and without it the "
                         "results would be wrong",
                         source_.name(), Printable(info.name), hyper_.architecture);
    }
    return {};
}

void Builder::Fail(Error error) {
    if (status_.ok()) status_ = std::move(error);
}

std::string Builder::Local(const std::string& name) const {
    return prefix_ + (layer_ < 0 ? name : fmt::format("l{}.{}{}", layer_, part_, name));
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
    return {heads.begin * Heads().head_dim, heads.end * Heads().head_dim};
}

HeadShape Builder::Heads() const {
    return hyper_.HeadsOf(std::max<int64_t>(layer_, 0));
}

Span Builder::ValueColumns(const Span& heads) const {
    return {heads.begin * Heads().ValueDim(), heads.end * Heads().ValueDim()};
}

Span Builder::QueryHeads() const {
    const bool windowed = layer_ >= 0 && hyper_.IsWindowed(layer_);
    return windowed ? shard_.windowed_heads : shard_.heads;
}

Span Builder::KvHeads() const {
    const int64_t group = Heads().heads / Heads().kv_heads;
    return {QueryHeads().begin / group, (QueryHeads().end - 1) / group + 1};
}

Builder::Home Builder::HomeOfHeads(const std::string& weight, int64_t begin, int64_t rows) const {
    if (Has(weight + ".weight") || !Has("attn_qkv.weight")) return {Tensor(weight), 0, rows};
    const HeadShape shape = Heads();
    const int64_t all =
        (shape.heads + shape.kv_heads) * shape.head_dim + shape.kv_heads * shape.ValueDim();
    return {Tensor("attn_qkv"), begin, all};
}

Builder::Home Builder::HomeOfFfn(const std::string& weight) const {
    const int64_t all = AllFfn();
    const bool gated = !hyper_.ungated || hyper_.gates_ungated;
    const bool apart = !gated || Has("ffn_gate.weight") || !Has("ffn_up.weight");
    if (apart) return {Tensor(weight), 0, all};
    return {Tensor("ffn_up"), weight == "ffn_up" ? all : 0, 2 * all};
}

int64_t Builder::AllFfn() const {
    return hyper_.FfnOf(layer_);
}

Span Builder::FfnColumns() const {
    return shard_.FfnOf(layer_);
}

ValueId Builder::FromHome(ValueId x, const std::string& weight, const Home& home, const Span& rows,
                          program::MatMul attributes, bool bias) {
    const Span there{home.begin + rows.begin, home.begin + rows.end};
    const int64_t columns = program_.value(x).shape[1];
    std::vector<ValueId> inputs = {
        x, Weight(home.tensor + ".weight", {there, {0, columns}, home.all_rows, columns},
                  Tensor(weight) + ".weight")};
    if (bias || source_.FindTensor(home.tensor + ".bias") != nullptr) {
        inputs.push_back(
            Weight(home.tensor + ".bias", {there, {}, home.all_rows, 0}, Tensor(weight) + ".bias"));
    }
    for (size_t i = 1; i < inputs.size(); ++i) {
        program_.values[static_cast<size_t>(inputs[i])].slice.home_row = home.begin;
    }
    if (shard_.layout.tp == 1) attributes = {};
    return program_.Emit(attributes, std::move(inputs), Local(weight),
                         {program_.value(x).shape[0], rows.size()});
}

ValueId Builder::Weight(const std::string& tensor, const Slice& slice, std::string name) {
    name.insert(0, prefix_);
    if (name == prefix_) name += tensor;
    if (const ValueId known = program_.Find(name); known != kNoValue) return known;
    const bool vector = slice.cols.size() == 0;
    program::Value value;
    value.name = std::move(name);
    value.storage = Storage::kWeight;
    value.shape = vector ? Shape{slice.rows.size()} : Shape{slice.rows.size(), slice.cols.size()};
    value.slice = {prefix_ + tensor, slice.rows.begin, slice.cols.begin};
    const int64_t dims[] = {vector ? slice.all_rows : slice.all_cols, slice.all_rows};
    const model_files::TensorInfo* info =
        source_.FindNeeded(tensor, std::span(dims, vector ? 1 : 2));
    if (info == nullptr) {
        Fail(MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing; a {} model needs it",
                       source_.name(), tensor, hyper_.architecture));
        return program_.AddValue(std::move(value));
    }
    value.dtype = info->dtype;
    // A vector of n elements is stored as one row.
    const int64_t rows = vector ? info->cols * info->rows : info->rows;
    const int64_t cols = vector ? 0 : info->cols;
    if (rows != slice.all_rows || cols != slice.all_cols) {
        Fail(MakeError(ErrorCode::kCorrupt,
                       "{}: tensor {} is [{}, {}]; expected [{}, {}] from the model's "
                       "hyper-parameters",
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

// Columns that a segmented mat_mul sums in float32 before adding to float64. Cuts fall on multiples
// of `unit` and of the tensor's cut block, so a segment is at most 64 columns, or one such block or
// unit. The same in every layout.
int64_t Builder::SegmentColumns(const model_files::TensorInfo& tensor, int64_t unit) {
    constexpr int64_t kMost = 64, kLeast = 16;
    const int64_t block = CutBlock(tensor.dtype, tensor.cols);
    if (block > kMost) return block;
    const int64_t whole = std::lcm(unit, block);
    const int64_t columns = std::gcd(whole, kMost);
    if (columns >= kLeast) return columns;
    if (whole % 2 != 0) return kMost;  // kernels take 16-bit weights in pairs
    for (int64_t divisor = kMost; divisor >= kLeast; divisor -= 2) {
        if (whole % divisor == 0) return divisor;
    }
    return whole;
}

ValueId Builder::WholeBlocks(ValueId x, const std::string& tensor, Slice& slice) {
    const model_files::TensorInfo* info = source_.FindTensor(tensor);
    if (info == nullptr) return x;  // Weight reports the error
    const int64_t block = Info(info->dtype).block_elements;
    const Span own = slice.cols;
    slice.cols = {own.begin / block * block, (own.end + block - 1) / block * block};
    if (slice.cols == own) return x;
    const program::Value value = program_.value(x);
    Shape shape = value.shape;
    shape.dims[static_cast<size_t>(shape.rank - 1)] = slice.cols.size();
    return program_.Emit(program::PadColumns{own.begin - slice.cols.begin}, {x},
                         value.name + ".blocks", shape);
}

ValueId Builder::FromColumns(ValueId x, const std::string& weight, const Slice& slice,
                             int64_t unit) {
    x = PartialFromColumns(x, weight, slice, unit);
    if (program_.ops.back().as<program::MatMul>().segment_cols != 0 && shard_.layout.tp > 1) {
        SetWide(x);
    }
    return WithBias(AllReduce(x), weight);
}

ValueId Builder::WithBias(ValueId x, const std::string& weight) {
    if (!Has(weight + ".bias")) return x;
    const ValueId b = Weight(Tensor(weight) + ".bias", {{0, hyper_.hidden}, {}, hyper_.hidden, 0});
    return program_.EmitLike(program::AddBias{}, {x, b}, Local(weight) + ".bias", x);
}

// For inference, sums are segmented even on one rank: then any layout gives the same bits except in
// rare rounding cases, and later 8-bit activations round the same way. Training sums in f32.
ValueId Builder::PartialFromColumns(ValueId x, const std::string& weight, const Slice& slice,
                                    int64_t unit) {
    program::MatMul attributes;
    attributes.cut = Cut::kColumns;
    const int64_t dims[] = {slice.all_cols, slice.all_rows};
    const model_files::TensorInfo* info = source_.FindNeeded(Tensor(weight) + ".weight", dims);
    if (HidesCuts() && info != nullptr) attributes.segment_cols = SegmentColumns(*info, unit);
    Slice blocks = slice;
    x = WholeBlocks(x, Tensor(weight) + ".weight", blocks);
    return MatMul(x, Tensor(weight), blocks, attributes, false, Local(weight));
}

ValueId Builder::AllReduce(ValueId x) {
    if (shard_.layout.tp == 1) return x;
    const program::Value value = program_.value(x);
    return program_.Emit(program::AllReduce{}, {x}, value.name + ".sum", value.shape);
}

}  // namespace weft::model
