// The supported architectures (src/families), and the facts that their files do not state.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/builder.h"
#include "model/recurrent.h"
#include "program/program.h"
#include "tensor/activation.h"
#include "tensor/ungated.h"

namespace weft::model {

// How a model's layers choose the positions that they attend to: not at all, unless its file has
// the keys of DeepSeek's indexer; always by that; or by blocks (MiniMax M3).
enum class IndexerKind { kByKeys, kAlways, kBlocks };

// Hyper-connections: none; streams that a layer mixes, and a weighted sum after the last layer
// (DeepSeek-V4); the same with their mean (GLM-5-next); streams that are not mixed (Hy4).
enum class Streams { kOne, kMixed, kMean, kIndependent };

// LayerNorm: never, unless the file has an epsilon of RMS norms, or always, with whichever epsilon
// and biases the file has. kPlain...: norms without weights.
enum class Norms { kRms, kByKey, kLayer, kPlainLayer, kPlainRms };

// Facts about an architecture. Unless a comment says otherwise, a number is the default of a key
// that files may omit, and a flag means that the builder supports the keys named.
struct Traits {
    bool draft_head = false;  // its layer is built as the model's (draft_head.h)
    bool encoder = false;     // Hyper::encoder

    // ---- Windows: attention.sliding_window, sliding_window_pattern ----
    int64_t window = 0;
    // One of each n layers has no window, the last or the first of them; 0: all have one.
    int64_t window_pattern = 0;
    bool first_sees_all = false;

    // ---- Norms and MLP ----
    Norms norms = Norms::kRms;
    std::optional<Ungated> ungated = {};  // MLPs have no gate, but this activation
    bool gates_ungated = false;           // Hyper::gates_ungated
    Activation activation = Activation::kSilu;
    bool limits = false;         // swiglu_clamp_exp, swiglu_clamp_shexp
    bool limits_gate = false;    // limits also apply to the gate, and to the shared expert
    bool limits_routed = false;  // but not to the shared expert

    // ---- Factors and caps ----
    bool embeds_by_root = false;  // the embedding times the root of its columns
    double attention_cap = 0, logit_cap = 0;
    int64_t layers_by_hidden = 0;  // a model of that many layers scales scores by hidden / heads
    bool plain_scores = false;     // scores have no factor
    bool value_scale = false;      // attention.value_scale
    bool clamps = false;           // attention.clamp_kqv
    bool logit_factor = false;     // logit_scale, a factor
    bool granite_scales = false;   // embedding_scale, residual_scale; logit_scale, a divisor
    bool cpm_scales = false;       // with the defaults of MiniCPM's first models and MiniCPM 3
    bool temperature = false;      // attention.temperature_scale, temperature_length

    // ---- Positions ----
    bool rotates = true;
    bool turns_back = false;      // RoPE rotates by negative angles
    bool marks_rotation = false;  // rope.scaling.finetuned: whether attention has positions
    bool lists_rotation = false;  // rope.layers: whether each layer has RoPE
    // Default of attention.max_alibi_bias. Attention with such a bias has no RoPE.
    std::optional<double> alibi = {};
    bool scales_alibi = false;   // the factor on scores applies to the bias as well
    bool halves_rotary = false;  // layers without a window rotate half of rope.dimension_count
    bool plain_windows = false;  // RoPE of windowed layers is not scaled
    double windowed_base = 0;    // base of windowed layers; 0: that of the others
    bool truncates_yarn = true;
    bool whole_magnitude = false;  // scaling.attn_factor is the whole magnitude of YaRN
    bool alpha = false;            // scaling.alpha, which raises the base

    // ---- Attention ----
    bool norms_embedding = false;  // token_embd_norm, before the first layer
    bool rotates_latents = true;
    bool usual_latent_eps = false;  // norms of latents have the epsilon of the others
    bool latent_halves = false;     // latents rotate column i with i + rope / 2
    bool scales_latents = false;    // Mistral Large 4: temperatures and norms of its own
    IndexerKind indexer = IndexerKind::kByKeys;
    bool late_indexers = false;  // with a context of 2^20, most layers share an earlier choice
    bool indexer_neighbours = false;
    bool index_last =
        false;  // its heads rotate their last columns; its norms have the usual epsilon
    bool pools_windows = false;  // DeepSeek-V4's windows and base of pooled layers
    Streams streams = Streams::kOne;
    bool drafts_may_lack = false;  // files may count draft layers that they lack
    int64_t layers_together = 1;   // number of layers that a pipeline cut does not divide

    // ---- Experts ----
    program::GateScore gate_score = program::GateScore::kSoftmax;
    bool renormalises = true;
    bool sigmoid_if_biased = false;  // sigmoids if the file corrects scores
    bool two_best = false;           // a group's score is the sum of its best two experts
    bool weighs_input = false;       // the weight of an expert multiplies its input

    // ---- Recurrent state ----
    std::optional<Recurrent::Kind> recurrent = {};
    bool cycles = false;          // Recurrent::cycles
    bool may_lack_state = false;  // some models have no such layers
};

// A row of docs/models.md.
struct Family {
    std::string_view architecture;  // general.architecture in its files
    std::string_view models;        // "Llama 1-3.x, Mistral"
    std::string_view features;      // features in addition to attention and a gated MLP
    // Cases of tests/support/golden_models.h and tests/data, compared with an independent
    // implementation in every layout.
    std::string_view tested;
};

struct Architecture {
    Family family;
    // Emits this stage's layers: takes the residual stream before them and returns the one after.
    program::ValueId (*build)(Builder&, program::ValueId);
    // Reads and checks keys that only this family has; may be null. `hyper` has the sizes, windows,
    // heads and scales, but no positions, temperature or indexer yet (hyper.cc).
    Status (*read)(const model_files::ModelSource& source, Hyper& hyper) = nullptr;
    bool experts = false;  // also exists with experts
    Traits traits = {};
};

// nullptr: not supported.
const Architecture* FindArchitecture(std::string_view name);
// Defaults if it is not supported.
const Traits& TraitsOf(std::string_view name);

// The tables of all families (families/family.h).
std::vector<std::span<const Architecture>> AllFamilies();

}  // namespace weft::model
