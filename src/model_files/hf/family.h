// Families of Hugging Face models: for each, its GGUF architecture, which tensor of the folder is
// which tensor of a GGUF file, and how config.json becomes GGUF metadata. One file a group of
// relatives (family_llama.cc, ...), a table of rules and a function each; kFamilies in family.cc is
// the list. Names and transforms are those of llama.cpp's converter, so that model/ builds the same
// Program from a folder and from a GGUF file.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/gguf_writer.h"
#include "model_files/hf/json.h"
#include "model_files/hf/rope.h"

namespace weft::model_files::hf {

class Assembly;

// How a tensor of a layer gets its place. All but the last two also take NAME.bias along, where the
// folder has it.
enum class Form : uint8_t {
    kLinear,
    kQuery,    // rows by query head, in pairs where the family has them so
    kKey,      // the same by KV head
    kRouter,   // kept in F32: a choice of experts is no place to round
    kExperts,  // '*' in the name is the expert's number; all stacked to [experts, rows, cols]
    kNorm,     // a vector, plus what the family adds to norms
    kVector    // a vector; names are given whole, ".weight" or ".bias" included
};

// One line of a table: blk.N.GGUF from PREFIX.layers.N.HF.
struct Rule {
    std::string_view gguf, hf;
    Form form;
    bool needed = true;  // in every layer
};

// Metadata under "ARCHITECTURE.".
class MetaWriter {
  public:
    // draft_heads: layers behind those that config.json counts.
    MetaWriter(GgufWriter& writer, std::string_view architecture, int64_t draft_heads = 0)
        : writer_(writer),
          prefix_(std::string(architecture) + "."),
          draft_heads_(draft_heads) {}
    int64_t draft_heads() const { return draft_heads_; }
    std::string_view architecture() const {
        return std::string_view(prefix_).substr(0, prefix_.size() - 1);
    }
    void Ints(std::string_view key, std::span<const int64_t> values) {
        const std::vector<int32_t> narrow(values.begin(), values.end());
        writer_.I32s(prefix_ + std::string(key), narrow);
    }
    void Int(std::string_view key, int64_t value) {
        writer_.U32(prefix_ + std::string(key), static_cast<uint32_t>(value));
    }
    void F32(std::string_view key, double value) {
        writer_.F32(prefix_ + std::string(key), static_cast<float>(value));
    }
    void F32s(std::string_view key, std::span<const float> values) {
        writer_.F32s(prefix_ + std::string(key), values);
    }
    void Bool(std::string_view key, bool value) { writer_.Bool(prefix_ + std::string(key), value); }
    void String(std::string_view key, std::string_view value) {
        writer_.String(prefix_ + std::string(key), value);
    }
    void Bools(std::string_view key, std::span<const bool> values);

  private:
    GgufWriter& writer_;
    std::string prefix_;
    int64_t draft_heads_;
};

// The modules of a head of multi-token prediction beside its layer's.
struct DraftHeadNames {
    std::string_view both, token_norm, hidden_norm, last_norm;
    // They stand beside the head's layers, behind `prefix`; otherwise in its layer, which is behind
    // the model's.
    bool apart = false;
    std::string_view prefix = "";
};

struct EndScales {
    double embedding = 1, output = 1;
};

struct Family {
    std::string_view model_type;    // of config.json
    std::string_view architecture;  // of GGUF
    std::array<std::span<const Rule>, 5> rules;
    Status (*meta)(const Config& config, MetaWriter& meta);
    // What rules cannot say, of one layer (prefix: "model.layers.3."); may be null.
    Status (*layer)(Assembly& assembly, int64_t layer, const std::string& prefix) = nullptr;
    bool pairs = false;  // rows of Q and K: HF has halves, GGUF neighbouring pairs
    // Experts in one tensor may stand there as [experts, in, out].
    bool turned_experts = false;
    float norm_add = 0;
    bool plain_final_norm = false;  // norm_add is not for the norm before the output
    // Puts what the family says in a way of its own under the usual keys; may be null.
    Result<Config> (*adjust)(const Config& config) = nullptr;
    // What transformers takes for keys that config.json doesn't mention, as JSON; kCommonDefaults
    // (family.cc) has those that most families share.
    std::string_view defaults = "{}";
    RopeTraits rope = {};
    std::string_view embedding = "embed_tokens";  // the module with a row for each token
    std::string_view final_norm = "norm";         // the module of the norm behind all layers
    // Of several families with one model_type, the first whose `fits` says so; null: any config.
    Result<bool> (*fits)(const Config& config) = nullptr;
    // What the embedding and the output matrix are multiplied with; may be null.
    Result<EndScales> (*ends)(const Config& config) = nullptr;
    const DraftHeadNames* draft_head = nullptr;  // null: the family has none that Weft knows
};

// The family of a config.json. kUnsupported: names the model_type and the supported ones.
Result<const Family*> FindFamily(const Config& config);
// "llama, mistral, qwen2, ...".
std::string SupportedModelTypes();

// ---- What families share ------------------------------------------------------------------------

// The sizes that every decoder has, RoPE and its scaling included. Another activation than
// `activation` is refused.
Status WriteCommon(const Config& config, MetaWriter& meta, std::string_view activation = "silu");

// Experts, which the model must have: how many, how many are used and how they are chosen. `width`:
// the key of an expert's columns, "moe_intermediate_size" or, of models without a dense layer,
// "intermediate_size". `gating`: "softmax" or "sigmoid", where config.json doesn't say.
Status WriteExperts(const Config& config, MetaWriter& meta, std::string_view width,
                    std::string_view gating);

// Which layers of a model with experts have none: the first (first_k_dense_replace), those of
// mlp_only_layers, and all but each decoder_sparse_step-th.
Result<std::vector<bool>> DenseLayers(const Config& config);
// WriteCommon, and Granite's factors.
Status WriteGranite(const Config& config, MetaWriter& meta);

// Keys and tensors of latent attention (family_deepseek.cc): its sizes, and a layer's `module`,
// which has keys and values, as attn_k_b and attn_v_b.
Status LatentMeta(const Config& config, MetaWriter& meta);
Status SplitKvB(Assembly& assembly, int64_t layer, const std::string& module);
// Which layers of Qwen3-Next and Qwen 3.5 have recurrent state.
Result<std::vector<bool>> RecurrentLayers(const Config& config);

// The config with mlp_layer_types ("dense" or "sparse", one a layer), where it is there, as
// first_k_dense_replace and mlp_only_layers. kCorrupt: another type, or another number of them.
Result<Config> WithDenseLayers(const Config& config);

// The text model's config: the family's defaults, config.json, and its "text_config" over it,
// adjusted by the family, with RoPE resolved. kCorrupt: a key is null that has no such value.
Result<Config> TextConfig(const Config& config, const Family& family);

// The window and which layers have it. `pattern`: which layers slide where config.json has no
// layer_types; no keys are written where no layer slides.
Status WriteWindow(const Config& config, MetaWriter& meta, int64_t window,
                   bool (*pattern)(int64_t layer));
// The window of all layers, `sliding_window`; null is none.
Status WindowEverywhere(const Config& config, MetaWriter& meta);

// The config with layer_types, where it has none but a window: sliding_window_pattern says which
// layers slide, as a number n (all but each n-th, counted from layer `first`, before which none do)
// or as letters L and G in turn; `usual` where it is absent.
Result<Config> WithLayerTypes(const Config& config, int64_t usual, int64_t first = 0);

// Of DeepSeek and GLM.
inline constexpr DraftHeadNames kDeepseekDraftHead = {"eh_proj", "enorm", "hnorm",
                                                      "shared_head.norm"};

inline constexpr Rule kAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey},
    {"attn_v", "self_attn.v_proj", Form::kLinear},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
};
inline constexpr Rule kQkNormRules[] = {
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm},
};
inline constexpr Rule kPreNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
};
inline constexpr Rule kMlpRules[] = {
    {"ffn_gate", "mlp.gate_proj", Form::kLinear},
    {"ffn_up", "mlp.up_proj", Form::kLinear},
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};
// A layer has experts or is dense: none of these is needed in each.
inline constexpr Rule kMoeRules[] = {
    {"ffn_gate", "mlp.gate_proj", Form::kLinear, false},
    {"ffn_up", "mlp.up_proj", Form::kLinear, false},
    {"ffn_down", "mlp.down_proj", Form::kLinear, false},
    {"ffn_gate_inp", "mlp.gate", Form::kRouter, false},
    {"ffn_gate_exps", "mlp.experts.*.gate_proj", Form::kExperts, false},
    {"ffn_up_exps", "mlp.experts.*.up_proj", Form::kExperts, false},
    {"ffn_down_exps", "mlp.experts.*.down_proj", Form::kExperts, false},
};
inline constexpr Rule kSharedExpertsRules[] = {
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj", Form::kLinear, false},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj", Form::kLinear, false},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj", Form::kLinear, false},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", Form::kVector, false},
};
// Of one shared expert, which a gate of its own opens (Qwen).
inline constexpr Rule kSharedExpertRules[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", Form::kRouter, false},
    {"ffn_gate_shexp", "mlp.shared_expert.gate_proj", Form::kLinear, false},
    {"ffn_up_shexp", "mlp.shared_expert.up_proj", Form::kLinear, false},
    {"ffn_down_shexp", "mlp.shared_expert.down_proj", Form::kLinear, false},
};

// ---- The families -------------------------------------------------------------------------------

std::span<const Family> LlamaFamilies();
std::span<const Family> LlamaLikeFamilies();
std::span<const Family> Llama4Families();
std::span<const Family> QwenFamilies();
std::span<const Family> QwenNextFamilies();
std::span<const Family> GemmaFamilies();
std::span<const Family> Gemma4Families();
std::span<const Family> DeepseekFamilies();
std::span<const Family> Deepseek4Families();
std::span<const Family> MoeFamilies();
std::span<const Family> CohereFamilies();
std::span<const Family> ExaoneFamilies();
std::span<const Family> HunyuanFamilies();
std::span<const Family> KimiLinearFamilies();
std::span<const Family> Lfm2Families();
std::span<const Family> MixedFamilies();
std::span<const Family> NemotronFamilies();
std::span<const Family> GraniteHybridFamilies();
std::span<const Family> FalconFamilies();

}  // namespace weft::model_files::hf
