#include "model/model_shape.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "model/model.h"

namespace weft::model {

using model_files::TensorInfo;

namespace {

TensorInfo InfoOf(std::string tensor, std::span<const int64_t> dims, DType dtype) {
    TensorInfo info{std::move(tensor), dtype, dims[0], 1, static_cast<int>(dims.size()),
                    {1, 1, 1, 1},      0,     0,       0};
    for (size_t i = 0; i < dims.size(); ++i) {
        info.dims[i] = dims[i];
        if (i > 0) info.rows *= dims[i];
    }
    info.bytes = static_cast<uint64_t>(info.rows * RowBytes(dtype, info.cols));
    return info;
}

// Small tensors whose rounding would change results are F32 in files; tables of numbers are I32.
DType TypeOf(std::string_view tensor, size_t dims) {
    if (tensor.ends_with(".ffn_gate_tid2eid.weight")) return DType::kI32;
    if (dims == 1) return DType::kF32;
    constexpr std::array<std::string_view, 7> kExact = {
        ".ffn_gate_inp.weight", "conv1d.weight", "conv1d_q.weight", "conv1d_k.weight",
        "conv1d_v.weight",      "_ape.weight",   "_fn.weight"};
    const bool exact =
        std::ranges::any_of(kExact, [&](std::string_view end) { return tensor.ends_with(end); });
    const bool bias = tensor.ends_with(".bias") || tensor.ends_with("shortconv.conv.weight");
    return exact || bias ? DType::kF32 : DType::kBF16;
}

// The layer of "blk.3.NAME", and NAME; -1: another tensor.
std::pair<int64_t, std::string_view> LayerAndName(std::string_view name) {
    int64_t layer = -1;
    if (!name.starts_with("blk.")) return {-1, name};
    const char* const end = name.data() + name.size();
    const auto [dot, error] = std::from_chars(name.data() + 4, end, layer);
    if (error != std::errc() || dot == end) return {-1, name};
    return {layer, {dot + 1, end}};
}

// Draft heads published with a model of this config.json.
Result<int64_t> DraftHeads(const model_files::hf::FolderConfig& config) {
    if (config.family->draft_head == nullptr) return 0;
    WEFT_ASSIGN(const int64_t heads,
                model_files::hf::PublishedDraftHeads(config.config, *config.family));
    return std::min<int64_t>(heads, 1);  // drafts use the first head
}

}  // namespace

ModelShape::ModelShape(std::string name, model_files::hf::FolderConfig config,
                       model_files::hf::LayerTensors layers)
    : name_(std::move(name)),
      family_(config.family),
      config_(std::move(config.config)),
      header_(std::move(config.header)),
      meta_(name_, std::move(config.entries)),
      layers_(std::move(layers)) {}

Result<std::unique_ptr<ModelShape>> ModelShape::Make(std::string config_text,
                                                     const std::string& name, bool draft_head) {
    using model_files::hf::ParseFolderConfig;
    WEFT_ASSIGN(model_files::hf::FolderConfig config, ParseFolderConfig(config_text, name));
    int64_t heads = 0;
    if (draft_head) {
        WEFT_ASSIGN(heads, DraftHeads(config));
        WEFT_ASSIGN(config, ParseFolderConfig(std::move(config_text), name, {heads, {}, {}}));
    }
    WEFT_ASSIGN(auto layers, model_files::hf::LayerTensors::Of(config, heads));
    std::unique_ptr<ModelShape> shape(new ModelShape(name, std::move(config), std::move(layers)));
    WEFT_TRY(shape->AddEnds());
    WEFT_TRY(shape->Describe(heads > 0));
    return shape;
}

Status ModelShape::AddEnds() {
    WEFT_ASSIGN(const int64_t vocabulary, config_.NeedInt({"vocab_size"}, 1, 1 << 24));
    WEFT_ASSIGN(const int64_t hidden, config_.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const bool tied, config_.BoolOr({"tie_word_embeddings"}, false));
    WEFT_ASSIGN(const int64_t columns,  // OPT's
                config_.IntOr({"word_embed_proj_dim"}, 1, 1 << 20, hidden));
    const int64_t dims[] = {columns, vocabulary}, to[] = {columns, hidden},
                  back[] = {hidden, columns};
    Add("token_embd.weight", dims);
    if (columns != hidden) Add("token_embd_proj.weight", to);
    if (columns != hidden || layers_.Names("output_proj.weight")) Add("output_proj.weight", back);
    if (!tied || layers_.Names("output.weight")) Add("output.weight", dims);
    if (layers_.Names("position_embd.weight")) {
        WEFT_ASSIGN(const int64_t rows,
                    config_.NeedInt({"max_position_embeddings"}, 1, int64_t{1} << 24));
        const int64_t table[] = {hidden, rows};
        Add("position_embd.weight", table);
    }
    for (const char* name :
         {"token_embd_norm.weight", "token_embd_norm.bias", "output_norm.bias", "output_proj.bias",
          "output_proj_norm.weight", "output_proj_norm.bias"}) {
        if (layers_.Names(name)) Add(name, std::span(back, 1));
    }
    if (layers_.Names("output.bias")) Add("output.bias", std::span(dims + 1, 1));
    WEFT_ASSIGN(auto ropes, model_files::hf::RopeVectors(config_));
    for (auto& rope : ropes) AddNumbers(rope.tensor, std::move(rope.factors));
    return {};
}

// Builds the Program of one rank with all layers, which names the tensors that it needs.
Status ModelShape::Describe(bool draft_head) {
    WEFT_ASSIGN(hyper_, ReadHyper(*this));
    WEFT_ASSIGN(const Layout layout, MakeLayout(1, 1, 1, {}));
    WEFT_ASSIGN(const ShardPlan plan, PlanShards(hyper_, *this, layout));
    BuildOptions options;
    options.draft_head = draft_head;
    WEFT_TRY(BuildProgram(hyper_, plan.shards[0], *this, options));
    AddUnread();
    described_ = true;
    expected_.clear();
    return {};
}

// Files also have keys and values of layers that read another layer's cache (Gemma 4).
void ModelShape::AddUnread() {
    for (int64_t layer = 0; layer < hyper_.layers; ++layer) {
        if (hyper_.KvLayer(layer) == layer || hyper_.latent.rank > 0) continue;
        const HeadShape heads = hyper_.HeadsOf(layer);
        const int64_t matrix[] = {hyper_.hidden, heads.kv_heads * heads.head_dim};
        const std::string block = fmt::format("blk.{}.", layer);
        Add(block + "attn_k.weight", matrix);
        Add(block + "attn_k_norm.weight", std::span(&heads.head_dim, 1));
        if (layers_.Has(layer, "attn_v.weight")) Add(block + "attn_v.weight", matrix);
    }
}

const TensorInfo& ModelShape::Add(std::string tensor, std::span<const int64_t> dims) const {
    index_.emplace(tensor, tensors_.size());
    const DType dtype = TypeOf(tensor, dims.size());
    return tensors_.emplace_back(InfoOf(std::move(tensor), dims, dtype));
}

void ModelShape::AddNumbers(const std::string& tensor, std::vector<float> numbers) {
    const int64_t dims[] = {static_cast<int64_t>(numbers.size())};
    Add(tensor, dims);
    numbers_.emplace(tensor, std::move(numbers));
}

const TensorInfo* ModelShape::FindTensor(std::string_view tensor) const {
    const auto found = index_.find(std::string(tensor));
    if (found != index_.end()) return &tensors_[found->second];
    const auto [layer, name] = LayerAndName(tensor);
    if (described_ || layer < 0 || !layers_.Has(layer, name)) return nullptr;
    // Only the rows of an output gate are read from a file (Builder::GateHeads).
    const HeadShape heads = hyper_.HeadsOf(layer);
    const int64_t value = hyper_.latent.rank > 0 ? hyper_.latent.value : heads.ValueDim();
    const int64_t columns = layers_.gates_columns() ? value : 1;
    const int64_t dims[] = {hyper_.hidden, heads.heads * columns};
    return &expected_.emplace_back(
        InfoOf(std::string(tensor), dims, TypeOf(tensor, std::size(dims))));
}

const TensorInfo* ModelShape::FindNeeded(std::string_view tensor,
                                         std::span<const int64_t> dims) const {
    const auto found = index_.find(std::string(tensor));
    if (found != index_.end()) return &tensors_[found->second];
    return described_ ? nullptr : &Add(std::string(tensor), dims);
}

Status ModelShape::ReadRows(const TensorInfo& tensor, int64_t, int64_t, int64_t col, int64_t cols,
                            std::span<std::byte> out, uint64_t*) const {
    const auto known = numbers_.find(tensor.name);
    if (known != numbers_.end()) {  // a vector, which has one row
        std::memcpy(out.data(), known->second.data() + col,
                    static_cast<size_t>(cols) * sizeof(float));
        return {};
    }
    if (tensor.dtype == DType::kF32 && tensor.bytes == sizeof(float)) {  // a factor of a layer
        const float one = 1;
        std::memcpy(out.data(), &one, sizeof(one));
        return {};
    }
    return MakeError(ErrorCode::kNotFound,
                     "{}: only the model's shape is here, tensor {} has no numbers. 'weft pull' "
                     "fetches a model",
                     name_, tensor.name);
}

Result<std::string> ModelShape::Fingerprint() const {
    return MakeError(ErrorCode::kNotFound, "{}: only the model's shape is here", name_);
}

void ModelShape::SetType(size_t index, DType dtype) {
    TensorInfo& info = tensors_[index];
    info.dtype = dtype;
    info.bytes = static_cast<uint64_t>(info.rows * RowBytes(dtype, info.cols));
}

}  // namespace weft::model
