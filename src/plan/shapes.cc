#include "plan/shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "base/file.h"
#include "base/json.h"
#include "model/hyper.h"
#include "model_files/hf/folder_config.h"
#include "plan/machine.h"
#include "plan/names.h"
#include "plan/packed_types.h"
#include "quantize/plan.h"

namespace weft::plan {
namespace {

using model_files::ModelSource;
using model_files::TensorInfo;

class ShapeModel final : public ModelSource {
  public:
    ShapeModel(std::string name, model_files::hf::FolderConfig config)
        : name_(std::move(name)),
          header_(std::move(config.header)),
          meta_(name_, std::move(config.entries)) {}

    const std::string& name() const override { return name_; }
    const model_files::Metadata& meta() const override { return meta_; }
    const std::vector<TensorInfo>& tensors() const override { return tensors_; }
    const TensorInfo* FindTensor(std::string_view tensor) const override {
        const auto found = index_.find(std::string(tensor));
        return found == index_.end() ? nullptr : &tensors_[found->second];
    }
    Status ReadRows(const TensorInfo& tensor, int64_t, int64_t, int64_t col, int64_t cols,
                    std::span<std::byte> out, uint64_t*) const override {
        const auto known = numbers_.find(tensor.name);
        if (known != numbers_.end()) {  // a vector, which has one row
            std::memcpy(out.data(), known->second.data() + col,
                        static_cast<size_t>(cols) * sizeof(float));
            return {};
        }
        return MakeError(ErrorCode::kNotFound,
                         "{}: only the model's shape is here, tensor {} has no numbers. 'weft "
                         "pull' fetches a model",
                         name_, tensor.name);
    }
    Result<std::string> Fingerprint() const override {
        return MakeError(ErrorCode::kNotFound, "{}: only the model's shape is here", name_);
    }

    // dims: columns first.
    void Add(const std::string& tensor, std::vector<int64_t> dims, DType dtype = DType::kBF16) {
        TensorInfo info{tensor,       dtype, dims[0], 1, static_cast<int>(dims.size()),
                        {1, 1, 1, 1}, 0,     0,       0};
        for (size_t i = 0; i < dims.size(); ++i) {
            info.dims[i] = dims[i];
            if (i > 0) info.rows *= dims[i];
        }
        info.bytes = static_cast<uint64_t>(info.rows * RowBytes(dtype, info.cols));
        index_.emplace(tensor, tensors_.size());
        tensors_.push_back(std::move(info));
    }
    void SetNote(std::string note) { note_ = std::move(note); }
    const std::string& note() const { return note_; }
    // A vector whose values come from config.json.
    void AddNumbers(const std::string& tensor, std::vector<float> numbers) {
        Add(tensor, {static_cast<int64_t>(numbers.size())}, DType::kF32);
        numbers_.emplace(tensor, std::move(numbers));
    }
    void SetType(size_t index, DType dtype) {
        TensorInfo& info = tensors_[index];
        info.dtype = dtype;
        info.bytes = static_cast<uint64_t>(info.rows * RowBytes(dtype, info.cols));
    }

  private:
    std::string name_;
    std::vector<std::byte> header_;  // meta_ points into it
    model_files::Metadata meta_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string, size_t> index_;
    std::map<std::string, std::vector<float>, std::less<>> numbers_;
    std::string note_;
};

// Writes the tensors of a model of some architecture under their GGUF names.
class ShapeWriter {
  public:
    ShapeWriter(ShapeModel& model, const model::Hyper& hyper, const model_files::hf::Config& config)
        : model_(model), h_(hyper), config_(config), name_(hyper.architecture) {}

    Status Run() {
        WEFT_ASSIGN(const std::vector<bool> dense, model_files::hf::DenseLayers(config_));
        WEFT_ASSIGN(const int64_t step,  // Llama 4's
                    config_.IntOr({"interleave_moe_layer_step"}, 0, 1 << 16, 0));
        WEFT_TRY(ReadKinds());
        WEFT_ASSIGN(qk_norm_, config_.BoolOr({"use_qk_norm"}, false));
        WEFT_ASSIGN(bias_, config_.BoolOr({"attention_bias"}, false));
        WEFT_ASSIGN(k_is_v_, config_.BoolOr({"attention_k_eq_v"}, false));
        WEFT_ASSIGN(gate_columns_, GatesColumns());
        Vector("output_norm.weight", h_.hidden);
        if (h_.windowing.streams > 0) Streams("output_hc", h_.windowing.streams, 1);
        for (int64_t layer = 0; layer < h_.layers; ++layer) {
            Layer(layer, h_.moe.experts > 0 && !dense[static_cast<size_t>(layer)] &&
                             (step == 0 || (layer + 1) % step == 0));
        }
        block_.clear();
        if (h_.layer_columns > 0) LayerInputs();
        return {};
    }

    // A draft head follows the layers and is like one; in a model with experts it has experts, too.
    void DraftHead() {
        Layer(h_.layers, h_.moe.experts > 0);
        Matrix("nextn.eh_proj", 2 * h_.hidden, h_.hidden);
        for (const char* norm : {"enorm", "hnorm", "shared_head_norm"}) {
            Vector(fmt::format("nextn.{}.weight", norm), h_.hidden);
        }
    }

  private:
    void Layer(int64_t layer, bool experts) {
        block_ = fmt::format("blk.{}.", layer);
        if (name_.starts_with("nemotron_h")) return NemotronLayer(layer);
        if (name_ == "deci") return DeciLayer(layer);
        Norms(experts);
        if (h_.windowing.streams > 0) return Windows(layer);
        const bool recurrent = layer < h_.layers && IsRecurrent(layer);
        if (name_ == "falcon-h1" || recurrent) Recurrent();
        if (!recurrent) h_.latent.rank > 0 ? Latent(layer) : Attention(layer);
        if (h_.indexer.heads > 0 && h_.indexer.IsOwn(layer)) {
            h_.indexer.block > 0 ? BlockIndexer() : Indexer();
        }
        if (!experts || name_ == "gemma4") Mlp("", h_.FfnOf(layer));
        if (experts) Experts();
        if (h_.layer_columns > 0) LayerInput();
    }

    // Reads the layers with recurrent state and, for Nemotron, those that are an MLP or experts.
    Status ReadKinds() {
        if (Is({"qwen3next", "qwen35", "qwen35moe"})) {
            delta_net_ = true;
            WEFT_ASSIGN(recurrent_, model_files::hf::RecurrentLayers(config_));
            return {};
        }
        const model_files::Metadata& meta = model_.meta();
        const auto by_layer = [&](const char* name) -> Result<std::vector<int64_t>> {
            const std::string key = name_ + "." + name;
            const model_files::MetaEntry* entry = meta.Find(key);
            const bool list = entry != nullptr && entry->type == model_files::MetaType::kArray;
            return list ? meta.Ints(key) : Result<std::vector<int64_t>>(std::vector<int64_t>());
        };
        WEFT_ASSIGN(const std::vector<int64_t> kv, by_layer("attention.head_count_kv"));
        WEFT_ASSIGN(mlp_, by_layer("feed_forward_length"));
        if (name_ == "deci") kv_ = kv;
        for (const int64_t heads : kv) recurrent_.push_back(heads == 0 && name_ != "deci");
        const bool mamba = Is({"nemotron_h", "nemotron_h_moe", "falcon-h1", "granitehybrid"});
        if (!mamba) return {};
        WEFT_ASSIGN(mamba_.heads, meta.Int(name_ + ".ssm.time_step_rank", 1, 1 << 20));
        WEFT_ASSIGN(mamba_.key_heads, meta.Int(name_ + ".ssm.group_count", 1, 1 << 20));
        WEFT_ASSIGN(mamba_.key_dim, meta.Int(name_ + ".ssm.state_size", 1, 1 << 20));
        WEFT_ASSIGN(mamba_.taps, meta.Int(name_ + ".ssm.conv_kernel", 1, 1 << 20));
        WEFT_ASSIGN(const int64_t inner, meta.Int(name_ + ".ssm.inner_size", 1, 1 << 24));
        mamba_.value_dim = inner / mamba_.heads;
        WEFT_ASSIGN(mamba_norm_, config_.BoolOr({"mamba_rms_norm"}, name_ != "falcon-h1"));
        return {};
    }
    bool Is(std::initializer_list<std::string_view> names) const {
        return std::ranges::find(names, name_) != names.end();
    }
    // Attention's output gate has a row for each column; if false, one for each head.
    Result<bool> GatesColumns() const {
        if (name_ != "laguna") return Is({"afmoe", "muse-glimmer"});
        const nlohmann::json& json = config_.json();
        return json.contains("gating") && json["gating"] == "per-element";
    }
    void Vector(const std::string& tensor, int64_t size) {
        model_.Add(block_ + tensor, {size}, DType::kF32);
    }
    void Matrix(const std::string& tensor, int64_t cols, int64_t rows, bool bias = false) {
        model_.Add(block_ + tensor + ".weight", {cols, rows});
        if (bias) Vector(tensor + ".bias", rows);
    }
    void Norms(bool experts) {
        const bool both = Is({"gemma2", "gemma3", "gemma4", "glm4", "afmoe", "muse-glimmer"});
        const bool olmo = Is({"olmo2", "exaone4"});
        const bool after = Is({"gpt-oss", "glm4moe", "seed_oss"}) || delta_net_;
        const bool one = Is({"cohere2", "cohere2moe", "command-r"});
        if (!olmo) Vector("attn_norm.weight", h_.hidden);
        if (!olmo && !after && !one) Vector("ffn_norm.weight", h_.hidden);
        if (both || olmo || after) Vector("post_attention_norm.weight", h_.hidden);
        if (both || olmo) Vector("post_ffw_norm.weight", h_.hidden);
        if (name_ != "gemma4") return;
        model_.AddNumbers(block_ + "layer_output_scale.weight", {1});
        if (!experts) return;
        for (const char* norm : {"post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"}) {
            Vector(norm + std::string(".weight"), h_.hidden);
        }
    }
    void Attention(int64_t layer) {
        const model::HeadShape heads = h_.HeadsOf(layer);
        const int64_t q = heads.heads * heads.head_dim, k = heads.kv_heads * heads.head_dim;
        const int64_t v = heads.kv_heads * heads.ValueDim(), out = heads.heads * heads.ValueDim();
        const bool gpt = name_ == "gpt-oss", windowed = h_.IsWindowed(layer);
        const bool bias = gpt || Is({"qwen2", "qwen2moe", "qwen2vl", "seed_oss"}) || bias_;
        if (Is({"phi3", "bailingmoe2"})) {
            Matrix("attn_qkv", h_.hidden, q + k + v);
            Matrix("attn_output", out, h_.hidden);
            return name_ == "phi3" ? void() : HeadNorms(heads.head_dim, heads.head_dim);
        }
        Matrix("attn_q", h_.hidden, delta_net_ ? 2 * q : q, bias);  // and a gate for each
        Matrix("attn_k", h_.hidden, k, bias);
        const bool own_v = name_ != "gemma4" || windowed || !k_is_v_;
        if (own_v) Matrix("attn_v", h_.hidden, v, bias);
        Matrix("attn_output", out, h_.hidden, gpt);
        if (Is({"afmoe", "laguna", "muse-glimmer", "step35"})) {
            Matrix("attn_gate", h_.hidden, gate_columns_ ? out : heads.heads);
        }
        if (gpt || (name_ == "mimo2" && windowed)) Vector("attn_sinks.weight", heads.heads);
        if (Is({"minimax-m2", "olmo2", "olmoe"}) || (name_ == "command-r" && qk_norm_)) {
            return HeadNorms(q, k);
        }
        if (Is({"qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "gemma3", "gemma4", "hy_v3", "dots1",
                "exaone4", "exaone-moe", "hunyuan-dense", "hunyuan-moe", "afmoe", "laguna",
                "muse-glimmer", "step35", "minimax-m3", "lfm2", "lfm2moe"}) ||
            delta_net_ || (name_ == "glm4moe" && qk_norm_)) {
            HeadNorms(heads.head_dim, heads.head_dim);
        }
    }
    void HeadNorms(int64_t q, int64_t k) {
        Vector("attn_q_norm.weight", q);
        Vector("attn_k_norm.weight", k);
    }
    bool IsRecurrent(int64_t layer) const {
        return !recurrent_.empty() && recurrent_[static_cast<size_t>(layer)];
    }
    // Each layer is one of: Mamba-2, attention, an MLP, or experts.
    void NemotronLayer(int64_t layer) {
        Vector("attn_norm.weight", h_.hidden);
        if (mlp_[static_cast<size_t>(layer)] > 0) {
            return h_.moe.experts > 0 ? Experts() : Mlp("", h_.ffn);
        }
        IsRecurrent(layer) ? Mamba2() : Attention(layer);
    }
    // A layer may lack attention or the MLP.
    void DeciLayer(int64_t layer) {
        if (kv_[static_cast<size_t>(layer)] > 0) {
            Vector("attn_norm.weight", h_.hidden);
            Attention(layer);
        }
        if (mlp_[static_cast<size_t>(layer)] == 0) return;
        Vector("ffn_norm.weight", h_.hidden);
        Mlp("", mlp_[static_cast<size_t>(layer)]);
    }
    void Recurrent() {
        switch (h_.recurrent.kind) {
            case model::Recurrent::Kind::kDeltaNet: return delta_net_ ? DeltaNet() : Mamba2();
            case model::Recurrent::Kind::kMamba2: return Mamba2();
            case model::Recurrent::Kind::kKimiDelta: return KimiDelta();
            case model::Recurrent::Kind::kShortConv: return ShortConv();
        }
    }
    void Mamba2() {
        const model::Recurrent& r = mamba_;
        const int64_t inner = r.heads * r.value_dim, shared = r.key_heads * r.key_dim;
        Matrix("ssm_in", h_.hidden, 2 * inner + 2 * shared + r.heads);
        model_.Add(block_ + "ssm_conv1d.weight", {r.taps, inner + 2 * shared}, DType::kF32);
        Vector("ssm_conv1d.bias", inner + 2 * shared);
        for (const char* of_heads : {"ssm_a", "ssm_d", "ssm_dt.bias"}) Vector(of_heads, r.heads);
        if (mamba_norm_) {
            model_.Add(block_ + "ssm_norm.weight", {inner / r.key_heads, r.key_heads}, DType::kF32);
        }
        Matrix("ssm_out", inner, h_.hidden);
    }
    // Ling 3 has whole gate matrices; Kimi Linear has two low-rank factors for each.
    void KimiDelta() {
        const model::Recurrent& r = h_.recurrent;
        const int64_t all = r.heads * r.key_dim;
        for (const char* part : {"q", "k", "v"}) {
            Matrix(std::string("attn_") + part, h_.hidden, all);
            model_.Add(fmt::format("{}ssm_conv1d_{}.weight", block_, part), {r.taps, 1, all},
                       DType::kF32);
        }
        for (const char* gate : {"ssm_f", "ssm_g"}) {
            const bool whole = name_ == "bailingmoe3";
            Matrix(gate + std::string("_a"), h_.hidden, whole ? all : r.key_dim);
            if (!whole) Matrix(gate + std::string("_b"), r.key_dim, all);
        }
        Matrix("ssm_beta", h_.hidden, r.heads);
        Vector("ssm_a", r.heads);
        Vector("ssm_dt.bias", all);
        Vector("ssm_norm.weight", r.value_dim);
        Matrix("attn_output", all, h_.hidden);
    }
    void ShortConv() {
        Matrix("shortconv.in_proj", h_.hidden, 3 * h_.hidden);
        model_.Add(block_ + "shortconv.conv.weight", {h_.recurrent.taps, h_.hidden}, DType::kF32);
        Matrix("shortconv.out_proj", h_.hidden, h_.hidden);
    }
    // Gemma 4's small models: each layer's matrices for its own embedding, and the tables of all
    // layers.
    void LayerInput() {
        Matrix("inp_gate", h_.hidden, h_.layer_columns);
        Matrix("proj", h_.layer_columns, h_.hidden);
        Vector("post_norm.weight", h_.hidden);
    }
    void LayerInputs() {
        const int64_t all = h_.layer_columns * h_.layers;
        model_.Add("per_layer_token_embd.weight", {all, h_.vocab});
        Matrix("per_layer_model_proj", h_.hidden, all);
        Vector("per_layer_proj_norm.weight", h_.layer_columns);
    }
    void DeltaNet() {
        const model::Recurrent& r = h_.recurrent;
        const int64_t values = r.heads * r.value_dim;
        const int64_t channels = 2 * r.key_heads * r.key_dim + values;
        Matrix("attn_qkv", h_.hidden, channels);
        Matrix("attn_gate", h_.hidden, values);
        model_.Add(block_ + "ssm_conv1d.weight", {r.taps, channels}, DType::kF32);
        Vector("ssm_a", r.heads);
        Vector("ssm_dt.bias", r.heads);
        Vector("ssm_norm.weight", r.value_dim);
        Matrix("ssm_out", values, h_.hidden);
        if (!r.cycles) return Matrix("ssm_ba", h_.hidden, 2 * r.heads);
        Matrix("ssm_alpha", h_.hidden, r.heads);
        Matrix("ssm_beta", h_.hidden, r.heads);
    }
    void Latent(int64_t layer) {
        const model::Latent& m = h_.latent;
        const int64_t q_rows = h_.heads * (m.nope + m.rope);
        const int64_t rotated = m.IsPlain(layer) ? 0 : m.rope;
        if (m.q_rank > 0) {
            Matrix("attn_q_a", h_.hidden, m.q_rank);
            Vector("attn_q_a_norm.weight", m.q_rank);
            Matrix("attn_q_b", m.q_rank, q_rows);
        } else {
            Matrix("attn_q", h_.hidden, q_rows);
        }
        if (h_.KvLayer(layer) == layer) {
            Matrix("attn_kv_a_mqa", h_.hidden, m.rank + rotated);
            Vector("attn_kv_a_norm.weight", m.rank);
        }
        const int64_t plain = m.nope + m.rope - rotated;
        model_.Add(block_ + "attn_k_b.weight", {plain, m.rank, h_.heads});
        model_.Add(block_ + "attn_v_b.weight", {m.rank, m.value, h_.heads});
        Matrix("attn_output", h_.heads * m.value, h_.hidden);
        if (name_ == "bailingmoe3") Matrix("attn_gate", h_.hidden, h_.heads);
        if (m.scales) Line("attn_temperature", h_.heads);
    }
    // A vector of factors, and a vector of addends.
    void Line(const std::string& tensor, int64_t columns) {
        Vector(tensor + ".weight", columns);
        Vector(tensor + ".bias", columns);
    }
    // ---- DeepSeek V4 ----
    // Weights of residual streams.
    void Streams(const std::string& name, int64_t weights, int64_t scales) {
        model_.Add(block_ + name + "_fn.weight", {h_.stream_columns(), weights}, DType::kF32);
        Vector(name + "_base.weight", weights);
        Vector(name + "_scale.weight", scales);
    }
    void Pooling(const std::string& name, int64_t stride, int64_t width) {
        const int64_t columns = model::Windowing::IsShort(stride) ? 2 * width : width;
        Matrix(name + "_kv", h_.hidden, columns);
        Matrix(name + "_gate", h_.hidden, columns);
        model_.Add(block_ + name + "_ape.weight", {columns, stride}, DType::kF32);
        Vector(name + "_norm.weight", width);
    }
    void Windows(int64_t layer) {
        const model::Windowing& w = h_.windowing;
        const model::Indexer& m = h_.indexer;
        const int64_t q = h_.heads * h_.head_dim, stride = w.StrideOf(layer);
        for (const char* part : {"hc_attn", "hc_ffn"}) {
            Streams(part, w.streams * (2 + w.streams), 3);
        }
        for (const char* norm : {"attn_norm.weight", "ffn_norm.weight"}) Vector(norm, h_.hidden);
        Matrix("attn_q_a", h_.hidden, w.q_rank);
        Vector("attn_q_a_norm.weight", w.q_rank);
        Matrix("attn_q_b", w.q_rank, q);
        Matrix("attn_kv", h_.hidden, h_.head_dim);
        Vector("attn_kv_a_norm.weight", h_.head_dim);
        Vector("attn_sinks.weight", h_.heads);
        Matrix("attn_output_a", q / w.out_groups, w.out_groups * w.out_rank);
        Matrix("attn_output_b", w.out_groups * w.out_rank, h_.hidden);
        if (stride != 0) Pooling("attn_compressor", stride, h_.head_dim);
        if (model::Windowing::IsShort(stride)) {
            Matrix("indexer.attn_q_b", w.q_rank, m.heads * m.dim);
            Matrix("indexer.proj", h_.hidden, m.heads);
            Pooling("indexer_compressor", stride, m.dim);
        }
        Experts();
        if (layer >= w.hashed) return Vector("exp_probs_b.bias", h_.moe.experts);
        model_.Add(block_ + "ffn_gate_tid2eid.weight", {h_.moe.used, h_.vocab}, DType::kI32);
    }
    void Indexer() {
        const model::Indexer& m = h_.indexer;
        Matrix("indexer.attn_q_b", m.from_hidden ? h_.hidden : h_.latent.q_rank, m.heads * m.dim);
        Matrix("indexer.attn_k", h_.hidden, m.dim);
        Matrix("indexer.proj", h_.hidden, m.heads);
        Line("indexer.k_norm", m.dim);
        if (!m.from_hidden) return;
        Line("indexer.q_norm", h_.hidden);
        Line("indexer.temperature", m.heads);
    }
    void BlockIndexer() {
        const model::Indexer& m = h_.indexer;
        Matrix("indexer.q_proj", h_.hidden, m.heads * m.dim);
        Matrix("indexer.k_proj", h_.hidden, m.dim);
        Vector("indexer.q_norm.weight", m.dim);
        Vector("indexer.k_norm.weight", m.dim);
    }
    void Mlp(const std::string& suffix, int64_t columns) {
        if (Is({"phi3", "glm4"})) {  // gate over up
            Matrix("ffn_up", h_.hidden, 2 * columns);
            return Matrix("ffn_down", columns, h_.hidden);
        }
        if (!h_.ungated) Matrix("ffn_gate" + suffix, h_.hidden, columns);
        Matrix("ffn_up" + suffix, h_.hidden, columns);
        Matrix("ffn_down" + suffix, columns, h_.hidden);
    }
    void Stack(const std::string& tensor, int64_t cols, int64_t rows, bool bias) {
        model_.Add(block_ + tensor + ".weight", {cols, rows, h_.moe.experts});
        if (bias) model_.Add(block_ + tensor + ".bias", {rows, h_.moe.experts}, DType::kF32);
    }
    void Experts() {
        const model::Moe& m = h_.moe;
        const bool gpt = name_ == "gpt-oss";
        model_.Add(block_ + "ffn_gate_inp.weight", {h_.hidden, m.experts}, DType::kF32);
        if (gpt) Vector("ffn_gate_inp.bias", m.experts);
        const bool sigmoid = m.route.score == program::GateScore::kSigmoid;
        if ((sigmoid && !Is({"cohere2moe", "llama4"})) || name_ == "ernie4_5-moe") {
            Vector("exp_probs_b.bias", m.experts);
        }
        if (name_ == "gemma4") {
            Vector("ffn_gate_inp.scale", h_.hidden);
            Vector("ffn_down_exps.scale", m.experts);
        }
        const int64_t width = m.latent > 0 ? m.latent : h_.hidden;
        if (m.latent > 0) {
            Matrix("ffn_latent_down", h_.hidden, width);
            Matrix("ffn_latent_up", width, h_.hidden);
        }
        if (!h_.ungated) Stack("ffn_gate_exps", width, m.ffn, gpt);
        Stack("ffn_up_exps", width, m.ffn, gpt);
        Stack("ffn_down_exps", m.ffn, width, gpt);
        if (m.shared_ffn == 0) return;
        Mlp("_shexp", m.shared_ffn);
        if (name_ == "qwen2moe" || delta_net_) Matrix("ffn_gate_inp_shexp", h_.hidden, 1);
    }

    ShapeModel& model_;
    const model::Hyper& h_;
    const model_files::hf::Config& config_;
    const std::string name_;
    std::string block_;
    bool qk_norm_ = false, bias_ = false, k_is_v_ = false, gate_columns_ = false;
    bool delta_net_ = false, mamba_norm_ = false;
    model::Recurrent mamba_;       // of Mamba-2 layers
    std::vector<bool> recurrent_;  // by layer; empty if none is recurrent
    std::vector<int64_t> mlp_;     // columns by layer, if the model has them
    // KV heads by layer, for models in which some layers lack attention
    std::vector<int64_t> kv_;
};

// int4_experts: the model is published with 4-bit experts and other weights in BF16; so are its
// "4bit" files.
Status SetTypes(ShapeModel& model, const std::string& architecture, std::string_view type,
                bool int4_experts) {
    const bool gpt = architecture == "gpt-oss";
    const bool published = int4_experts && (type.empty() || type == "4bit" || type == "INT4");
    if (published) type = "BF16";
    if (type.empty()) type = gpt ? "MXFP4" : "BF16";
    WEFT_ASSIGN(const quantize::QuantizeOptions options, FindWeightType(type));
    WEFT_ASSIGN(const quantize::QuantizePlan plan, quantize::PlanQuantize(model, options));
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
        const bool experts = plan.tensors[i].from->name.ends_with("_exps.weight");
        DType to = plan.tensors[i].to;
        if (experts && gpt) to = DType::kMXFP4;
        if (experts && published) to = DType::kQ4_0;
        model.SetType(i, to);
    }
    return {};
}

// If no type is given, uses the types of the file's own quantization.
void SetPackedTypes(const PackedTypes& packed, ShapeModel& model) {
    for (size_t i = 0; i < model.tensors().size(); ++i) {
        const TensorInfo& tensor = model.tensors()[i];
        if (const auto dtype = packed.Of(tensor.name, tensor.cols)) model.SetType(i, *dtype);
    }
    model.SetNote(packed.note());
}

// Draft heads published with a model of this config.json. (Qwen3-Next's config does not list them.)
Result<int64_t> DraftHeads(const model_files::hf::FolderConfig& config) {
    if (config.family->draft_head == nullptr) return 0;
    const int64_t unsaid = config.family->architecture == "qwen3next" ? 1 : 0;
    WEFT_ASSIGN(
        const int64_t heads,
        config.config.IntOr({"num_nextn_predict_layers", "mtp_num_hidden_layers"}, 0, 64, unsaid));
    return std::min<int64_t>(heads, 1);  // drafts use the first head
}

}  // namespace

Result<std::unique_ptr<ModelSource>> MakeShape(std::string config_text, const std::string& name,
                                               std::string_view type, bool draft_head) {
    WEFT_ASSIGN(model_files::hf::FolderConfig config,
                model_files::hf::ParseFolderConfig(config_text, name));
    int64_t heads = 0;
    if (draft_head) {
        WEFT_ASSIGN(heads, DraftHeads(config));
        WEFT_ASSIGN(config,
                    model_files::hf::ParseFolderConfig(std::move(config_text), name, heads));
    }
    const model_files::hf::Config json = config.config;
    const PackedTypes packed(*config.family, json);
    auto model = std::make_unique<ShapeModel>(name, std::move(config));
    WEFT_ASSIGN(const int64_t vocabulary, json.NeedInt({"vocab_size"}, 1, 1 << 24));
    WEFT_ASSIGN(const int64_t hidden, json.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const bool tied, json.BoolOr({"tie_word_embeddings"}, false));
    model->Add("token_embd.weight", {hidden, vocabulary});
    if (!tied) model->Add("output.weight", {hidden, vocabulary});
    WEFT_ASSIGN(std::vector<model_files::hf::RopeVector> ropes, model_files::hf::RopeVectors(json));
    for (auto& rope : ropes) model->AddNumbers(rope.tensor, std::move(rope.factors));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*model));
    ShapeWriter writer(*model, hyper, json);
    WEFT_TRY(writer.Run());
    if (heads > 0) writer.DraftHead();
    WEFT_ASSIGN(const bool int4_experts, json.BoolOr({"int4_experts"}, false));
    WEFT_TRY(SetTypes(*model, hyper.architecture, type, int4_experts));
    if (type.empty()) SetPackedTypes(packed, *model);
    return std::unique_ptr<ModelSource>(std::move(model));
}

namespace {

Result<std::unique_ptr<ModelSource>> MakeNamed(const ShapeWord& word, bool head) {
    for (const EmbeddedFile& file : EmbeddedFiles()) {
        if (file.folder != "shapes" || file.name != word.shape) continue;
        if (word.context == 0) {
            return MakeShape(std::string(file.text), word.shape, word.type, head);
        }
        WEFT_ASSIGN(nlohmann::json config, ParseJsonText(file.text));
        config["max_position_embeddings"] = word.context;
        return MakeShape(config.dump(), word.shape, word.type, head);
    }
    return MakeError(ErrorCode::kUsage, "no shape '{}'", word.shape);
}

bool IsFolderWithoutWeights(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return false;
    const auto has_weights = [](const fs::directory_entry& entry) {
        const fs::path end = entry.path().extension();
        return end == ".safetensors" || end == ".gguf";
    };
    fs::directory_iterator files(path, ignored), end;
    return std::none_of(files, end, has_weights);
}

// "; those like it are llama-3.1-8b, llama-3-8b and 9 more".
std::string LikeIt(const std::string& name) {
    constexpr size_t kMost = 12;
    std::vector<std::string> names = NamesLike(name);
    const bool any = names.size() < ShapeNames().size();
    const size_t more = names.size() - std::min(names.size(), kMost);
    names.resize(names.size() - more);
    return fmt::format("; {} are {}{}", any ? "those like it" : "there", fmt::join(names, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
}

// Error for an unknown name. Explains whether its type is unknown, or lists similar names.
Error NoSuchShape(const std::string& word, const std::string& head, const std::string& type) {
    if (!type.empty() && FindShape(head)) {
        const auto known = FindWeightType(type);
        if (!known.ok()) return known.error();
    }
    return MakeError(ErrorCode::kUsage,
                     "no file or folder '{}', and no well-known model of that name{}. A path of "
                     "its config.json does as well",
                     word, LikeIt(head));
}

// Names the file in the error if config.json has another name.
Error UnderItsName(Error error, const std::string& said, const std::string& name) {
    const size_t at = error.message.find(said);
    if (at != error.message.npos) error.message.replace(at, said.size(), name);
    return error;
}

// Error for a repository, "hf:OWNER/NAME", that is not in the cache.
Error NotHere(const std::string& word) {
    const size_t slash = word.rfind('/');
    const std::string name = slash == word.npos ? word : word.substr(slash + 1);
    return MakeError(ErrorCode::kNotFound,
                     "{}: it is not in the cache, and no well-known model has its name{}. A path "
                     "of its config.json does as well, or 'weft pull {}' fetches it",
                     word, LikeIt(name), word);
}

}  // namespace

Result<std::unique_ptr<ModelSource>> OpenShape(const std::string& word, bool draft_head) {
    namespace fs = std::filesystem;
    const size_t colon = word.rfind(':');
    const std::string head = word.substr(0, colon);
    const std::string type = colon == word.npos ? "" : word.substr(colon + 1);
    std::error_code ignored;
    if (word.ends_with(':') && !fs::exists(word, ignored)) {
        return MakeError(ErrorCode::kUsage, "'{}': expected a type behind the colon, as {}:q4_k_m",
                         word, head);
    }
    const std::vector<std::string> names = ShapeNames();
    if (std::ranges::binary_search(names, head)) {
        const auto named = FindShape(word);
        if (named) return MakeNamed(*named, draft_head);
        return NoSuchShape(word, head, type);
    }
    if (head.ends_with(".json")) {
        WEFT_ASSIGN(std::string text, ReadTextFile(head, model_files::hf::kMostConfigBytes));
        const fs::path folder = fs::path(head).parent_path();
        auto shape = MakeShape(std::move(text), folder.string(), type, draft_head);
        if (shape.ok()) return shape;
        return UnderItsName(shape.error(), (folder / "config.json").string(), head);
    }
    if (IsFolderWithoutWeights(head)) {
        return OpenShape(
            (fs::path(head) / "config.json").string() + (type.empty() ? "" : ":" + type),
            draft_head);
    }
    // Local files and the cache take precedence over a known name.
    const bool hub = word.starts_with("hf:");
    const bool local = fs::exists(word, ignored) || word.ends_with(".gguf");
    if (local || (colon != word.npos)) {
        auto opened = model_files::OpenModel(word);
        if (opened.ok() || local || word.starts_with("synthetic:")) return opened;
        if (const auto named = FindShape(word)) return MakeNamed(*named, draft_head);
        if (hub && opened.error().code == ErrorCode::kNotFound) return NotHere(word);
        if (hub || !FindShape(head)) return opened;
    } else if (const auto named = FindShape(word)) {
        return MakeNamed(*named, draft_head);
    }
    return NoSuchShape(word, head, type);
}

std::string QuantizedTypeOf(const std::string& word) {
    namespace fs = std::filesystem;
    const size_t colon = word.rfind(':');
    std::string type = colon == word.npos ? "" : word.substr(colon + 1);
    std::error_code ignored;
    if (colon == word.npos && !fs::exists(word, ignored)) {
        if (const auto named = FindShape(word)) type = named->type;
    }
    const auto known = FindWeightType(type);
    return known.ok() && Info(known->type.base).quantized ? type : "";
}

Result<OpenedShape> OpenWalk(const std::string& word, KvTypes kv_dtype, bool draft_head) {
    OpenedShape opened;
    WEFT_ASSIGN(opened.source, OpenShape(word, draft_head));
    WEFT_ASSIGN(opened.walk, ModelWalk::Make(*opened.source, kv_dtype));
    const auto* shape = dynamic_cast<const ShapeModel*>(opened.source.get());
    opened.is_shape = shape != nullptr;
    if (shape != nullptr) opened.note = shape->note();
    return opened;
}

}  // namespace weft::plan
