// Families of Hugging Face models. A family defines its GGUF architecture, the mapping of the
// folder's tensors to tensors of a GGUF file, and the mapping of config.json to GGUF metadata. The
// families are in src/families.
// Names and transforms are those of llama.cpp's converter, so that model/ builds the same Program
// from a folder and from a GGUF file.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_files/gguf_writer.h"
#include "model_files/hf/json.h"
#include "model_files/hf/rope.h"
#include "model_files/hf/row_runs.h"

namespace weft::model_files {
class ModelSource;
}  // namespace weft::model_files

namespace weft::model_files::hf {

class Assembly;

// How a tensor of a layer is converted. All forms but the last two also convert NAME.bias, if the
// folder has it.
enum class Form : uint8_t {
    kLinear,
    kQuery,    // rows by query head, reordered to pairs if Family::pairs is set
    kKey,      // as kQuery, by KV head
    kRouter,   // kept in F32, so that rounding does not change the choice of experts
    kTurned,   // [in, out] in the folder
    kExperts,  // '*' in the name is the expert's number; all stacked to [experts, rows, cols]
    kNorm,     // a vector, plus the family's norm_add
    kNamed,    // a matrix that Family::layer adds as it is: the rule names it for adapters
    kVector    // a vector; names are complete, with ".weight" or ".bias"
};

// One mapping: blk.N.GGUF from PREFIX.layers.N.HF. A "%" in the names makes it three mappings: the
// % is "gate", "up" and "down", or in "w%" of `hf` the numbers 1, 3 and 2.
template <typename Name>
struct RuleOf {
    Name gguf, hf;
    Form form;
    bool needed = true;  // every layer must have it
};
using Rule = RuleOf<std::string_view>;

struct Family;

// Limits of the numbers in config.json.
inline constexpr int64_t kMostLayers = 4096, kMostHeads = 4096, kMostColumns = 1 << 20;
inline constexpr int64_t kMostContext = 1ll << 31;

// What a folder's tensors tell about its metadata.
struct TensorFacts {
    // Number of layers of a multi-token prediction head, which follow the model's layers, and which
    // config.json's count of layers excludes: 0 or 1.
    int64_t draft_heads = 0;
    std::string draft_fault;  // why such a head of the folder cannot be read
    std::map<std::string, std::vector<float>, std::less<>> numbers;  // by key, a number per layer
};

// Writes metadata under the prefix "ARCHITECTURE.".
class MetaWriter {
  public:
    MetaWriter(GgufWriter& writer, const Family& family, TensorFacts facts = {});
    const Family& family() const { return family_; }
    std::string_view architecture() const;
    int64_t draft_heads() const { return facts_.draft_heads; }
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
    void Bools(std::string_view key, const std::vector<bool>& values) {
        writer_.Bools(prefix_ + std::string(key),
                      std::vector<uint8_t>(values.begin(), values.end()));
    }
    // The numbers of TensorFacts under `key`, without the architecture's prefix; if there are none,
    // `usual` for all layers.
    void OfTensors(std::string_view key, double usual);

  private:
    GgufWriter& writer_;
    const Family& family_;
    std::string prefix_;
    TensorFacts facts_;
};

// Names of the modules that a multi-token prediction head has besides its layer.
struct DraftHeadNames {
    std::string_view both, token_norm, hidden_norm, last_norm;
    // true: these modules are outside the head's layer, under `prefix`; false: they are in the
    // head's layer.
    bool apart = false;
    std::string_view prefix = "";  // of the head's layers; empty: they follow the model's layers
    bool dense = false;            // the head's layer has no experts
    bool slides = false;           // it has the model's window, unless "mtp_layer_types" says other
    std::string_view output = "shared_head.head";  // the head's own output matrix, if it has one
};

// One module of a layer that holds queries, keys and values, and the order of its rows: for each KV
// head its query heads, its key and its value; all queries, then all keys, then all values; or four
// groups of heads, each with its queries, values and keys.
enum class QkvOrder : uint8_t { kByKvHead, kWhole, kFourGroups };
struct FusedQkv {
    std::string_view module = "";  // empty: the family has none
    QkvOrder order = QkvOrder::kByKvHead;
};
// The rows of queries, keys and values. Nothing: the heads cannot be divided so.
struct QkvRows {
    RowRuns q, k, v;
};
std::optional<QkvRows> RowsOf(QkvOrder order, int64_t heads, int64_t kv_heads, int64_t head_dim);

// A matrix of the folder that Family::layer divides, reorders or multiplies, as adapters name it.
struct AdaptedPart {
    std::string_view tensor, module;  // "attn_qkv", "linear_attn.in_proj_qkv"
    int64_t row_begin = 0, rows = 0;  // of the tensor; rows == 0: all
    RowRuns runs = {}, columns = {};  // of the folder's matrix
    double factor = 1;                // of the weights, unless the model has it as a tensor
};

struct EndScales {
    double embedding = 1, output = 1;
};

// Biases of Q, K and V. kByKey: if attention_bias is set; the output then has a bias as well.
enum class ClassBias : uint8_t { kNever, kAlways, kByKey };
// sliding_window applies to no layer, to all, or to those of layer_types (kUsed: if
// use_sliding_window is set).
enum class ClassWindows : uint8_t { kNone, kAll, kByLayer, kUsed };
// Factors on scores, logits and the residual stream: none; Granite's; or Gemma's
// query_pre_attn_scalar and soft caps, beside its hidden_activation.
enum class ClassScales : uint8_t { kNone, kGranite, kGemma };

// The class of transformers for folders that Weft writes of a family's models (export.h). The first
// class of an architecture has the numbers that readers assume; its later classes are for models
// with experts or windows.
struct ModelClass {
    std::string_view name = "";  // "LlamaForCausalLM"; empty: none
    ClassBias attention = ClassBias::kByKey;
    bool mlp_bias = false;  // the class has that key
    ClassWindows windows = ClassWindows::kNone;
    // The window and the pattern n (one of n layers has no window) of files that state none.
    int64_t window = 0, pattern = 0;
    bool experts = false;        // a later class, with experts whose weights are normalized
    bool shared_expert = false;  // has one; weights are normalized only if the key says so
    ClassScales scales = ClassScales::kNone;
    // Gemma: the number of layers that scale by hidden / heads, and the caps of files without them.
    int64_t layers_by_hidden = 0;
    double attention_cap = 0, logit_cap = 0;
};

// DeepSeek-V3's routing.
inline constexpr std::string_view kGroupRouting =
    "n_group topk_group norm_topk_prob routed_scaling_factor";

// Llama's rules.
inline constexpr Rule kAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery},
    {"attn_k", "self_attn.k_proj", Form::kKey},
    {"attn_v", "self_attn.v_proj", Form::kLinear},
    {"attn_output", "self_attn.o_proj", Form::kLinear},
};
// The same, if some layers have no attention.
inline constexpr Rule kSomeAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kQuery, false},
    {"attn_k", "self_attn.k_proj", Form::kKey, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear, false},
};
inline constexpr Rule kPreNormRules[] = {
    {"attn_norm", "input_layernorm", Form::kNorm},
    {"ffn_norm", "post_attention_layernorm", Form::kNorm},
};
inline constexpr Rule kMlpRules[] = {
    {"ffn_%", "mlp.%_proj", Form::kLinear},
};
inline constexpr Rule kUngatedMlpRules[] = {
    {"ffn_up", "mlp.up_proj", Form::kLinear},
    {"ffn_down", "mlp.down_proj", Form::kLinear},
};
// Norms behind attention and the MLP.
inline constexpr Rule kPostNormRules[] = {
    {"post_attention_norm", "post_attention_layernorm", Form::kNorm},
    {"post_ffw_norm", "post_feedforward_layernorm", Form::kNorm},
};

struct Family {
    std::string_view model_type;    // in config.json
    std::string_view also = "";     // other model_types, as words
    std::string_view architecture;  // in GGUF
    std::array<std::span<const Rule>, 6> rules = {kPreNormRules, kAttentionRules, kMlpRules};
    FusedQkv qkv = {};
    // Modules of an MLP that `layer` adds: one with the rows of the gate before those of up, and
    // that of down.
    std::string_view gate_up = "", down = "";
    Status (*meta)(const Config& config, MetaWriter& meta) = nullptr;  // null: WriteCommon
    // Not empty: the model has experts, whose keys WriteExperts writes after `meta`, with the width
    // "moe_intermediate_size" and this gating.
    std::string_view gating = "";
    // Keys of routing that the family's router in transformers reads, as words; it ignores others.
    std::string_view routing = "";
    // Converts a layer's tensors that rules cannot describe (prefix: "model.layers.3."); may be
    // null.
    Status (*layer)(Assembly& assembly, int64_t layer, const std::string& prefix) = nullptr;
    // The matrices of layers that only adapters name, beside those of rules; may be null.
    Result<std::vector<AdaptedPart>> (*adapted)(const ModelSource& source) = nullptr;
    bool pairs = false;  // rows of Q and K: halves in HF, neighboring pairs in GGUF
    // Fused expert tensors may be stored as [experts, in, out].
    bool turned_experts = false;
    float norm_add = 0;
    bool plain_final_norm = false;  // norm_add does not apply to the norm before the output
    // Replaces the family's special config keys by the usual keys; may be null.
    Result<Config> (*adjust)(const Config& config) = nullptr;
    // The defaults of transformers for keys that config.json lacks, as JSON; kCommonDefaults
    // (family.cc) has the defaults that most families share.
    std::string_view defaults = "{}";
    RopeTraits rope = {};
    std::string_view embedding = "embed_tokens";  // the module with a row per token
    std::string_view saved_embedding = "";  // its other name, in folders that transformers saves
    // The module of the norm after all layers; empty: none.
    std::string_view final_norm = "norm";
    bool encoder = false;  // has no output matrix; the folder may have heads of pre-training
    std::string_view layers = "layers";   // the module of the layers
    std::string_view path = "model";      // its place in the class that generates text
    std::string_view output = "lm_head";  // the module of the output matrix in that class
    bool plain_norms = false;             // norms have no weights
    // If several families have the same model_type, the first whose `fits` returns true is used;
    // null: fits any config.
    Result<bool> (*fits)(const Config& config) = nullptr;
    // Factors on the embedding and the output matrix; may be null.
    Result<EndScales> (*ends)(const Config& config) = nullptr;
    const DraftHeadNames* draft_head = nullptr;  // null: none that Weft supports
    int64_t draft_heads = 0;                     // published heads if config.json has no number
    std::string_view caps = "";                  // keys of soft caps that the family has, as words
    std::string_view layer_norm = "";  // LayerNorm: the key of its epsilon, instead of rms_norm_eps
    // Layers in GGUF for each layer of the folder. '#' in the rules' names is the number of one.
    int64_t sublayers = 1;
    std::string_view gguf_final_norm = "output_norm.weight";
    int64_t rotary_times = 1;  // rope.dimension_count is this many times the rotated columns
    // Tensors of layers, as words, that no rule names and that not all families of such a model
    // have (LayerTensors): biases, and what `layer` adds; also output_norm.bias and output.bias.
    // "NAME?KEY": only if that key of the config is true.
    std::string_view more_tensors = "";
    ModelClass written = {};
};

// A row like another one.
template <typename Change>
constexpr Family Like(Family family, const Change& change) {
    change(family);
    return family;
}

// The family of a config.json. Errors: kUnsupported, with the model_type and the supported types.
Result<const Family*> FindFamily(const Config& config);
// The first family with GGUF's architecture; nullptr: none.
const Family* FamilyOfArchitecture(std::string_view architecture);
// The number of draft heads that are published with a model of this config.json. Errors: kCorrupt.
Result<int64_t> PublishedDraftHeads(const Config& config, const Family& family);
// "llama, mistral, qwen2, ...".
std::string SupportedModelTypes();
// The family's rules, without "%".
std::vector<RuleOf<std::string>> RulesOf(const Family& family);

// ---- What families share ------------------------------------------------------------------------

// Writes the sizes that every decoder has, and RoPE with its scaling. Refuses activations other
// than `activation`.
Status WriteCommon(const Config& config, MetaWriter& meta, std::string_view activation = "silu");

// Writes the keys of experts: their number, the number used per token, and the routing. The model
// must have experts. `width`: the config key of an expert's columns, "moe_intermediate_size" or, in
// models without a dense layer, "intermediate_size". `gating`: "softmax" or "sigmoid", used if
// config.json names none.
Status WriteExperts(const Config& config, MetaWriter& meta, std::string_view width,
                    std::string_view gating);

// Writes metadata keys with numbers of config.json from 1 to 2^20. names: metadata's key, config's.
Status WriteNumbers(const Config& config, MetaWriter& meta,
                    std::initializer_list<std::pair<std::string_view, std::string_view>> names);

// Which layers of a model with experts are dense: the first layers (first_k_dense_replace), the
// layers in mlp_only_layers, the layers that decoder_sparse_step skips, and those that keys with an
// entry per layer name.
Result<std::vector<bool>> DenseLayers(const Config& config);
// WriteCommon, and the factors of Granite's keys.
Status WriteScales(const Config& config, MetaWriter& meta);

// The config with mlp_layer_types ("dense" or "sparse" per layer), if present, converted to
// first_k_dense_replace and mlp_only_layers. kCorrupt: an unknown type, or a wrong number of
// entries.
Result<Config> WithDenseLayers(const Config& config);

// The text model's config: the family's defaults, overridden by config.json, overridden by the
// "text_config" in config.json. Then Family::adjust and ResolveRope change it. kCorrupt: null for a
// key that must have a value.
Result<Config> TextConfig(const Config& config, const Family& family);

// Writes the window and the windowed layers. `pattern`: whether a layer is windowed if config.json
// has no layer_types. Writes no keys if no layer is windowed.
Status WriteWindow(const Config& config, MetaWriter& meta, int64_t window,
                   bool (*pattern)(int64_t layer));
// The windowed layers of a key with an entry per layer, with one more entry if the model has a
// draft head.
Result<std::vector<bool>> WithDraftHead(const Config& config, const MetaWriter& meta,
                                        std::vector<bool> slides);
// The config with keys by their present names. names: the present key, the key in config.json.
using KeyNames = std::vector<std::pair<std::string_view, std::string_view>>;
Config Renamed(const Config& config, const KeyNames& names);
// The same for models before Llama: an MLP has 4 times the columns of the residual stream, and
// there are as many KV heads as query heads, unless the config says otherwise. PlainKeys renames
// none.
Result<Config> UsualKeys(const Config& config, const KeyNames& names);
Result<Config> PlainKeys(const Config& config);
KeyNames GptNames();
// The config without an epsilon of RMS norms, which transformers ignores in these families.
Result<Config> NoRmsNorms(const Config& config);

// WriteCommon for MLPs whose activation is `hidden_act`: without a gate, or gated ("silu" needs no
// key).
Status WriteUngated(const Config& config, MetaWriter& meta);
Status WriteGated(const Config& config, MetaWriter& meta);

// Writes the limit of queries, keys and values; null: none.
Status WriteClamp(const Config& config, MetaWriter& meta);

// Writes `sliding_window` for all layers; null: no window.
Status WindowEverywhere(const Config& config, MetaWriter& meta);

// If use_sliding_window is set: layers from max_window_layers on are windowed; alternate: every
// second layer before it.
Status WriteUsedWindow(const Config& config, MetaWriter& meta, bool alternate = false);

// Whether each layer of layer_types has the type `type`; the others must have full_attention.
Result<std::vector<bool>> LayersOfType(const Config& config, std::string_view type);

// If the config has a window but no layer_types, adds them from sliding_window_pattern: a number n
// (from layer `first` on, all layers but each n-th are windowed; earlier layers are not), or a
// repeated string of letters L (windowed) and G. `usual`: the number if the key is absent.
Result<Config> WithLayerTypes(const Config& config, int64_t usual, int64_t first = 0);

// Only this clamped SwiGLU is supported (tensor/activation.h).
Status CheckClampedUnits(const Config& config);

// DeepSeek and GLM.
inline constexpr DraftHeadNames kDeepseekDraftHead = {"eh_proj", "enorm", "hnorm",
                                                      "shared_head.norm"};

// Hy3 and Ling.
inline constexpr DraftHeadNames kFinalNormDraftHead = {"eh_proj", "enorm", "hnorm",
                                                       "final_layernorm"};

inline constexpr std::string_view kQkvBiases = "attn_q.bias attn_k.bias attn_v.bias";

inline constexpr Rule kQkNormRules[] = {
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm},
};
// A layer is dense or has experts, so no rule here is `needed` in every layer.
inline constexpr Rule kMoeRules[] = {
    {"ffn_%", "mlp.%_proj", Form::kLinear, false},
    {"ffn_gate_inp", "mlp.gate", Form::kRouter, false},
    {"ffn_%_exps", "mlp.experts.*.%_proj", Form::kExperts, false},
};
inline constexpr Rule kBlockSparseMoeRules[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate", Form::kRouter, false},
    {"ffn_%_exps", "block_sparse_moe.experts.*.w%", Form::kExperts, false},
    {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", Form::kVector, false},
};
inline constexpr Rule kSharedExpertsRules[] = {
    {"ffn_%_shexp", "mlp.shared_experts.%_proj", Form::kLinear, false},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", Form::kVector, false},
};
// One shared expert with its own gate (Qwen).
inline constexpr Rule kSharedExpertRules[] = {
    {"ffn_gate_inp_shexp", "mlp.shared_expert_gate", Form::kRouter, false},
    {"ffn_%_shexp", "mlp.shared_expert.%_proj", Form::kLinear, false},
};

// The tables of all families (families/family.h).
std::vector<std::span<const Family>> AllTables();

}  // namespace weft::model_files::hf
