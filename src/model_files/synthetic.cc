#include "model_files/synthetic.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>

#include "model_files/gguf_writer.h"
#include "model_files/synthetic_weights.h"

namespace weft::model_files {
namespace {

constexpr std::string_view kSpecPrefix = "synthetic:";

// The experts of a model and their routing; all layers have experts except the first `dense`.
struct Experts {
    int count = 0, used = 0, feed_forward = 0, shared = 0, dense = 0;
    int groups = 1, groups_used = 1;
    bool sigmoid = false;
    float scale = 1;
};

// Latent attention and its YaRN.
struct Latent {
    int rank = 0, q_rank = 0, plain = 0, rotated = 0, value = 0;
    float yarn_factor = 1, yarn_beta_fast = 32;
};

struct Shape {
    std::string_view name;
    std::string_view architecture;
    int layers, hidden, feed_forward, heads, kv_heads, head_size;
    int vocabulary, context;
    float rope_base;
    float rope_factor;  // llama3 scaling; 0: none
    float norm_epsilon;
    bool tied;
    Experts experts = {};
    Latent latent = {};
};

// The values come from the models' config.json.
constexpr std::array<Shape, 12> kShapes = {{
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, 0, 1e-5f, true},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, 32, 1e-5f, true},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, 8, 1e-5f, false},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5f, 8, 1e-5f, false},
    {"llama-3.1-405b", "llama", 126, 16384, 53248, 128, 8, 128, 128256, 131072, 5e5f, 8, 1e-5f,
     false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, 0, 1e-6f, true},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, 0, 1e-6f, false},
    {"mixtral-8x7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1e6f, 0, 1e-5f, false,
     Experts{8, 2, 14336}},
    {"qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 40960, 1e6f, 0, 1e-6f, false,
     Experts{128, 8, 768}},
    {"qwen3-235b-a22b", "qwen3moe", 94, 4096, 12288, 64, 4, 128, 151936, 40960, 1e6f, 0, 1e-6f,
     false, Experts{128, 8, 1536}},
    {"deepseek-r1", "deepseek2", 61, 7168, 18432, 128, 1, 192, 129280, 163840, 1e4f, 0, 1e-6f,
     false, Experts{256, 8, 2048, 2048, 3, 8, 4, true, 2.5f}, Latent{512, 1536, 128, 64, 128, 40}},
    {"kimi-k2", "deepseek2", 61, 7168, 18432, 64, 1, 192, 163840, 131072, 5e4f, 0, 1e-6f, false,
     Experts{384, 8, 2048, 2048, 1, 1, 1, true, 2.827f}, Latent{512, 1536, 128, 64, 128, 32, 1}},
}};

struct Spec {
    Shape shape;
    DType dtype;
};

// Removes ":layers=N" from the end of `rest`; returns 0 if `rest` has no such end.
Result<int> TakeLayers(const std::string& spec, std::string_view& rest, int most) {
    constexpr std::string_view kMark = ":layers=";
    const size_t at = rest.find(kMark);
    if (at == rest.npos) return 0;
    const std::string_view number = rest.substr(at + kMark.size());
    int layers = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layers);
    if (error != std::errc() || end != number.data() + number.size() || layers < 1 ||
        layers > most) {
        return MakeError(ErrorCode::kUsage, "{}: '{}' layers; expected 1 to {}", spec, number,
                         most);
    }
    rest = rest.substr(0, at);
    return layers;
}

Result<Spec> ParseSpec(const std::string& spec) {
    std::string_view rest = std::string_view(spec).substr(kSpecPrefix.size());
    WEFT_ASSIGN(const int layers, TakeLayers(spec, rest, 4096));
    const size_t colon = rest.find(':');
    const std::string_view name = rest.substr(0, colon);
    const std::string_view type = colon == rest.npos ? "q4_0" : rest.substr(colon + 1);
    const Shape* shape = nullptr;
    std::string types;
    for (const Shape& known : kShapes) {
        if (known.name == name) shape = &known;
    }
    if (shape == nullptr) {
        return MakeError(ErrorCode::kUsage, "{}: no synthetic model is named '{}'; known: {}", spec,
                         name, Synthetic::Names());
    }
    const std::optional<DType> dtype = DTypeOfName(type);
    if (!dtype || *dtype == DType::kI32) {
        for (const DTypeInfo& info : kFileDTypes) {
            if (info.dtype == DType::kI32) continue;
            types += fmt::format("{}{}", types.empty() ? "" : ", ", info.name);
        }
        return MakeError(ErrorCode::kUsage, "{}: no weights of type '{}'; known: {}", spec, type,
                         types);
    }
    Spec found{*shape, *dtype};
    if (layers > shape->layers) {
        return MakeError(ErrorCode::kUsage, "{}: {} layers; {} has only {}", spec, layers, name,
                         shape->layers);
    }
    if (layers > 0) found.shape.layers = layers;
    return found;
}

void AppendUtf8(std::string& out, unsigned code) {  // code: below 0x800
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else {
        out += static_cast<char>(0xc0 | (code >> 6));
        out += static_cast<char>(0x80 | (code & 63));
    }
}

// The visible character that byte-level BPE writes for `byte`: the byte itself if it is printable
// in Latin-1, else the next unused one from U+0100 on.
std::string ByteToken(unsigned byte) {
    const auto printable = [](unsigned b) {
        return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    };
    unsigned code = byte;
    if (!printable(byte)) {
        code = 0x100;
        for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
    }
    std::string token;
    AppendUtf8(token, code);
    return token;
}

// A blank and three syllables, distinct for every n.
std::string Word(unsigned n) {
    constexpr std::string_view kConsonants = "bdfghjklmnprstvz";
    constexpr std::string_view kVowels = "aeiou";
    std::string word = ByteToken(' ');
    for (int syllable = 0; syllable < 3; ++syllable) {
        word += kConsonants[n % kConsonants.size()];
        n /= static_cast<unsigned>(kConsonants.size());
        word += kVowels[n % kVowels.size()];
        n /= static_cast<unsigned>(kVowels.size());
    }
    return word;
}

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr std::string_view kLlama3 =
    "{% for message in messages %}{{'<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\\n\\n' + message['content'] + '<|eot_id|>'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{% endif %}";

void WriteSyntheticTokenizer(GgufWriter& writer, const Shape& shape) {
    constexpr int32_t kNormal = 1, kControl = 3;
    const bool llama3 = shape.rope_factor > 0;
    const std::vector<std::string> special =
        llama3 ? std::vector<std::string>{"<|begin_of_text|>", "<|end_of_text|>",
                                          "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}
               : std::vector<std::string>{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    for (unsigned byte = 0; byte < 256; ++byte) tokens.push_back(ByteToken(byte));
    types.assign(256, kNormal);
    for (const std::string& token : special) tokens.push_back(token);
    types.resize(tokens.size(), kControl);
    for (unsigned n = 0; static_cast<int>(tokens.size()) < shape.vocabulary; ++n) {
        tokens.push_back(Word(n));
    }
    types.resize(tokens.size(), kNormal);
    writer.String("tokenizer.ggml.model", "gpt2");
    writer.String("tokenizer.ggml.pre", "default");
    writer.Strings("tokenizer.ggml.tokens", tokens);
    writer.I32s("tokenizer.ggml.token_type", types);
    writer.Strings("tokenizer.ggml.merges", {});
    writer.U32("tokenizer.ggml.bos_token_id", 256);
    writer.U32("tokenizer.ggml.eos_token_id", llama3 ? 260 : 258);
    writer.Bool("tokenizer.ggml.add_bos_token", llama3);
    writer.String("tokenizer.chat_template", llama3 ? kLlama3 : kChatMl);
}

void WriteExpertKeys(GgufWriter& writer, const Shape& shape) {
    const Experts& e = shape.experts;
    if (e.count == 0) return;
    const std::string prefix = std::string(shape.architecture) + ".expert_";
    const auto u32 = [&](std::string_view rest, int value) {
        if (value > 0) writer.U32(prefix + std::string(rest), static_cast<uint32_t>(value));
    };
    u32("count", e.count);
    u32("used_count", e.used);
    u32("feed_forward_length", e.feed_forward);
    u32("shared_count", e.shared / e.feed_forward);
    if (!e.sigmoid) return;
    constexpr int kSigmoid = 2;
    u32("group_count", e.groups);
    u32("group_used_count", e.groups_used);
    u32("gating_func", kSigmoid);
    writer.Bool(prefix + "weights_norm", true);
    writer.F32(prefix + "weights_scale", e.scale);
}

void WriteLatentKeys(GgufWriter& writer, const Shape& shape) {
    const Latent& m = shape.latent;
    if (m.rank == 0) return;
    const std::string prefix = std::string(shape.architecture) + ".";
    writer.U32(prefix + "leading_dense_block_count", static_cast<uint32_t>(shape.experts.dense));
    writer.U32(prefix + "attention.q_lora_rank", static_cast<uint32_t>(m.q_rank));
    writer.U32(prefix + "attention.kv_lora_rank", static_cast<uint32_t>(m.rank));
    // The cached latent counts as a head; the real head sizes have separate keys.
    writer.U32(prefix + "attention.key_length_mla", static_cast<uint32_t>(m.plain + m.rotated));
    writer.U32(prefix + "attention.value_length_mla", static_cast<uint32_t>(m.value));
    writer.String(prefix + "rope.scaling.type", "yarn");
    writer.F32(prefix + "rope.scaling.factor", m.yarn_factor);
    writer.U32(prefix + "rope.scaling.original_context_length", 4096);
    writer.F32(prefix + "rope.scaling.yarn_log_multiplier", 0.1f);
    writer.F32(prefix + "rope.scaling.yarn_beta_fast", m.yarn_beta_fast);
}

void WriteHyperParameters(GgufWriter& writer, const Shape& shape, const std::string& spec) {
    const auto key = [&](std::string_view rest) {
        return fmt::format("{}.{}", shape.architecture, rest);
    };
    const auto u32 = [&](std::string_view rest, int value) {
        writer.U32(key(rest), static_cast<uint32_t>(value));
    };
    writer.String("general.architecture", shape.architecture);
    writer.String("general.type", "model");
    writer.String("general.name", spec);
    u32("block_count", shape.layers);
    u32("context_length", shape.context);
    u32("embedding_length", shape.hidden);
    u32("feed_forward_length", shape.feed_forward);
    u32("attention.head_count", shape.heads);
    u32("attention.head_count_kv", shape.kv_heads);
    u32("attention.key_length",
        shape.latent.rank > 0 ? shape.latent.rank + shape.latent.rotated : shape.head_size);
    u32("attention.value_length", shape.latent.rank > 0 ? shape.latent.rank : shape.head_size);
    u32("rope.dimension_count", shape.latent.rank > 0 ? shape.latent.rotated : shape.head_size);
    WriteExpertKeys(writer, shape);
    WriteLatentKeys(writer, shape);
    u32("vocab_size", shape.vocabulary);
    writer.F32(key("rope.freq_base"), shape.rope_base);
    writer.F32(key("attention.layer_norm_rms_epsilon"), shape.norm_epsilon);
}

// The dtype of a matrix with `cols` columns in a model of type `dtype`.
DType FittingType(DType dtype, int64_t cols) {
    return cols % Info(dtype).block_elements == 0 ? dtype : DType::kQ8_0;
}

// Adds the tensors of a model, in the requested dtype where it fits.
class TensorWriter {
  public:
    TensorWriter(GgufWriter& writer, const Shape& shape, DType dtype)
        : writer_(writer), shape_(shape), dtype_(dtype) {}

    void Run() {
        const bool four_bit =
            dtype_ == DType::kQ4_0 || dtype_ == DType::kQ4_1 || dtype_ == DType::kQ4_K;
        const DType output = four_bit ? DType::kQ6_K : dtype_;
        Matrix("token_embd", shape_.tied ? output : dtype_, shape_.hidden, shape_.vocabulary);
        Vector("output_norm.weight", shape_.hidden);
        if (!shape_.tied) Matrix("output", output, shape_.hidden, shape_.vocabulary);
        if (shape_.rope_factor > 0) Vector("rope_freqs.weight", shape_.head_size / 2);
        for (int layer = 0; layer < shape_.layers; ++layer) {
            block_ = fmt::format("blk.{}.", layer);
            Vector("attn_norm.weight", shape_.hidden);
            shape_.latent.rank > 0 ? LatentAttention() : Attention();
            Vector("ffn_norm.weight", shape_.hidden);
            const bool dense = shape_.experts.count == 0 || layer < shape_.experts.dense;
            dense ? Mlp("", shape_.feed_forward) : Experts();
        }
    }

  private:
    void Matrix(const std::string& name, DType wanted, int64_t cols, int64_t rows) {
        const std::array<int64_t, 2> dims = {cols, rows};
        writer_.Tensor(block_ + name + ".weight", FittingType(wanted, cols), dims);
    }
    void Matrix(const std::string& name, int64_t cols, int64_t rows) {
        Matrix(name, dtype_, cols, rows);
    }
    void Stack(const std::string& name, int64_t cols, int64_t rows, int64_t matrices) {
        const std::array<int64_t, 3> dims = {cols, rows, matrices};
        writer_.Tensor(block_ + name + ".weight", FittingType(dtype_, cols), dims);
    }
    void Vector(const std::string& name, int64_t size) {
        writer_.Tensor(block_ + name, DType::kF32, std::span(&size, 1));
    }

    void Attention() {
        const int64_t q_rows = int64_t{shape_.heads} * shape_.head_size;
        const int64_t kv_rows = int64_t{shape_.kv_heads} * shape_.head_size;
        Matrix("attn_q", shape_.hidden, q_rows);
        Matrix("attn_k", shape_.hidden, kv_rows);
        Matrix("attn_v", shape_.hidden, kv_rows);
        Matrix("attn_output", q_rows, shape_.hidden);
        if (!shape_.architecture.starts_with("qwen3")) return;
        Vector("attn_q_norm.weight", shape_.head_size);
        Vector("attn_k_norm.weight", shape_.head_size);
    }

    void LatentAttention() {
        const Latent& m = shape_.latent;
        Matrix("attn_q_a", shape_.hidden, m.q_rank);
        Vector("attn_q_a_norm.weight", m.q_rank);
        Matrix("attn_q_b", m.q_rank, int64_t{shape_.heads} * (m.plain + m.rotated));
        Matrix("attn_kv_a_mqa", shape_.hidden, m.rank + m.rotated);
        Vector("attn_kv_a_norm.weight", m.rank);
        Stack("attn_k_b", m.plain, m.rank, shape_.heads);
        Stack("attn_v_b", m.rank, m.value, shape_.heads);
        Matrix("attn_output", int64_t{shape_.heads} * m.value, shape_.hidden);
    }

    void Mlp(const std::string& suffix, int64_t columns) {
        Matrix("ffn_gate" + suffix, shape_.hidden, columns);
        Matrix("ffn_up" + suffix, shape_.hidden, columns);
        Matrix("ffn_down" + suffix, columns, shape_.hidden);
    }

    void Experts() {
        const auto& e = shape_.experts;
        Matrix("ffn_gate_inp", DType::kF32, shape_.hidden, e.count);
        if (e.sigmoid) Vector("exp_probs_b.bias", e.count);
        Stack("ffn_gate_exps", shape_.hidden, e.feed_forward, e.count);
        Stack("ffn_up_exps", shape_.hidden, e.feed_forward, e.count);
        Stack("ffn_down_exps", e.feed_forward, shape_.hidden, e.count);
        if (e.shared > 0) Mlp("_shexp", e.shared);
    }

    GgufWriter& writer_;
    const Shape& shape_;
    const DType dtype_;
    std::string block_;
};

// Divisors of the RoPE frequencies in Llama 3.1 and later: 1 for fast ones, the factor for those
// slower than the original context, blended in between.
std::vector<float> RopeFactors(const Shape& shape) {
    constexpr double kLow = 1.0, kHigh = 4.0, kOriginalContext = 8192.0;
    if (shape.rope_factor == 0) return {};
    std::vector<float> factors;
    for (int i = 0; i < shape.head_size / 2; ++i) {
        const double frequency = std::pow(shape.rope_base, -2.0 * i / shape.head_size);
        const double wavelength = 2 * std::numbers::pi / frequency;
        const double blend = (kOriginalContext / wavelength - kLow) / (kHigh - kLow);
        const double clamped = std::min(1.0, std::max(0.0, blend));
        factors.push_back(
            static_cast<float>(1.0 / ((1.0 - clamped) / shape.rope_factor + clamped)));
    }
    return factors;
}

}  // namespace

std::string Synthetic::Names() {
    std::string names;
    for (const Shape& known : kShapes) {
        names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
    }
    return names;
}

bool Synthetic::IsSpec(std::string_view spec) {
    return spec.starts_with(kSpecPrefix);
}

Result<Synthetic> Synthetic::Make(const std::string& spec, uint64_t seed) {
    WEFT_CHECK(IsSpec(spec));
    WEFT_ASSIGN(const Spec wanted, ParseSpec(spec));
    GgufWriter writer;
    WriteHyperParameters(writer, wanted.shape, spec);
    WriteSyntheticTokenizer(writer, wanted.shape);
    TensorWriter(writer, wanted.shape, wanted.dtype).Run();
    std::vector<std::byte> bytes = writer.Header();
    const uint64_t file_bytes = bytes.size() + writer.DataBytes();
    WEFT_ASSIGN(GgufHeader header, ParseGguf(bytes, file_bytes, spec));
    return Synthetic(spec, seed, std::move(bytes), std::move(header), RopeFactors(wanted.shape));
}

Synthetic::Synthetic(std::string spec, uint64_t seed, std::vector<std::byte> header_bytes,
                     GgufHeader header, std::vector<float> rope_factors)
    : spec_(std::move(spec)),
      seed_(seed),
      header_bytes_(std::move(header_bytes)),
      meta_(spec_, std::move(header.entries)),
      tensors_(std::move(header.tensors)),
      rope_factors_(std::move(rope_factors)) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

const TensorInfo* Synthetic::FindTensor(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status Synthetic::ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                           int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                           uint64_t* bytes_read) const {
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    if (bytes_read != nullptr) *bytes_read += out.size();
    const auto row_bytes = static_cast<size_t>(RowBytes(tensor.dtype, col_count));
    if (tensor.rows == 1) {  // vectors: norms are 1; or RoPE factors
        const bool rope = tensor.name == "rope_freqs.weight";
        for (int64_t i = 0; i < row_count * col_count; ++i) {
            const float value = rope ? rope_factors_[static_cast<size_t>(col_begin + i)] : 1.0f;
            std::memcpy(out.data() + 4 * i, &value, 4);
        }
        return {};
    }
    const uint64_t key = WeightKey(seed_, tensor.name);
    for (int64_t r = 0; r < row_count; ++r) {
        RandomRow(tensor.dtype, key, tensor.cols, row_begin + r, col_begin, col_count,
                  out.subspan(static_cast<size_t>(r) * row_bytes, row_bytes));
    }
    return {};
}

Result<std::string> Synthetic::Fingerprint() const {
    constexpr uint64_t kGeneratorVersion = 1;
    FingerprintMaker maker;
    maker.Add(header_bytes_);
    maker.Add(seed_);
    maker.Add(kGeneratorVersion);
    return maker.Finish();
}

}  // namespace weft::model_files
