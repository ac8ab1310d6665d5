#include "formats/synthetic.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>

#include "formats/gguf_writer.h"
#include "formats/synthetic_weights.h"

namespace weft::formats {
namespace {

constexpr std::string_view kPrefix = "synthetic:";

struct Shape {
    std::string_view name;
    std::string_view architecture;
    int layers, hidden, feed_forward, heads, kv_heads, head_size;
    int vocabulary, context;
    float rope_base;
    float rope_factor;  // of the llama3 scaling; 0: none
    float norm_epsilon;
    bool tied;
};

// From the models' config.json.
constexpr std::array<Shape, 7> kShapes = {{
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, 0, 1e-5f, true},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, 32, 1e-5f, true},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, 8, 1e-5f, false},
    {"llama-3.1-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, 131072, 5e5f, 8, 1e-5f, false},
    {"llama-3.1-405b", "llama", 126, 16384, 53248, 128, 8, 128, 128256, 131072, 5e5f, 8, 1e-5f,
     false},
    {"qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, 0, 1e-6f, true},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 40960, 1e6f, 0, 1e-6f, false},
}};

struct Spec {
    Shape shape;
    DType dtype;
};

// Takes ":layers=N" off the end of `rest`; 0 where there is none.
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
    std::string_view rest = std::string_view(spec).substr(kPrefix.size());
    WEFT_ASSIGN(const int layers, TakeLayers(spec, rest, 4096));
    const size_t colon = rest.find(':');
    const std::string_view name = rest.substr(0, colon);
    const std::string_view type = colon == rest.npos ? "q4_0" : rest.substr(colon + 1);
    const Shape* shape = nullptr;
    std::string names, types;
    for (const Shape& known : kShapes) {
        if (known.name == name) shape = &known;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
    }
    if (shape == nullptr) {
        return MakeError(ErrorCode::kUsage, "{}: no synthetic model is named '{}'; known are {}",
                         spec, name, names);
    }
    const std::optional<DType> dtype = DTypeOfName(type);
    if (!dtype || *dtype == DType::kI32) {
        for (const DTypeInfo& info : kFileDTypes) {
            if (info.dtype == DType::kI32) continue;
            types += fmt::format("{}{}", types.empty() ? "" : ", ", info.name);
        }
        return MakeError(ErrorCode::kUsage, "{}: no weights of type '{}'; known are {}", spec, type,
                         types);
    }
    Spec found{*shape, *dtype};
    if (layers > shape->layers) {
        return MakeError(ErrorCode::kUsage, "{}: {} layers; {} has {}", spec, layers, name,
                         shape->layers);
    }
    if (layers > 0) found.shape.layers = layers;
    return found;
}

void AppendUtf8(std::string& out, unsigned code) {  // two bytes are enough here
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else {
        out += static_cast<char>(0xc0 | (code >> 6));
        out += static_cast<char>(0x80 | (code & 63));
    }
}

// The visible character that byte-level BPE writes for `byte`: itself where it is printable in
// Latin-1, else the next free one from U+0100 on.
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

// Word number `n` of a made-up language: a blank and three syllables, each number another word.
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

void WriteTokenizer(GgufWriter& writer, const Shape& shape) {
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
    u32("attention.key_length", shape.head_size);
    u32("attention.value_length", shape.head_size);
    u32("rope.dimension_count", shape.head_size);
    u32("vocab_size", shape.vocabulary);
    writer.F32(key("rope.freq_base"), shape.rope_base);
    writer.F32(key("attention.layer_norm_rms_epsilon"), shape.norm_epsilon);
}

// The type that a matrix of `cols` columns gets when the model was asked for in `dtype`.
DType FittingType(DType dtype, int64_t cols) {
    return cols % Info(dtype).block_elements == 0 ? dtype : DType::kQ8_0;
}

void WriteTensors(GgufWriter& writer, const Shape& shape, DType dtype) {
    const bool four_bit = dtype == DType::kQ4_0 || dtype == DType::kQ4_1 || dtype == DType::kQ4_K;
    const DType output_dtype = four_bit ? DType::kQ6_K : dtype;
    const auto matrix = [&](const std::string& name, DType wanted, int64_t cols, int64_t rows) {
        const std::array<int64_t, 2> dims = {cols, rows};
        writer.Tensor(name, FittingType(wanted, cols), dims);
    };
    const auto vector = [&](const std::string& name, int64_t size) {
        writer.Tensor(name, DType::kF32, std::span(&size, 1));
    };
    const int64_t q_rows = int64_t{shape.heads} * shape.head_size;
    const int64_t kv_rows = int64_t{shape.kv_heads} * shape.head_size;
    matrix("token_embd.weight", shape.tied ? output_dtype : dtype, shape.hidden, shape.vocabulary);
    vector("output_norm.weight", shape.hidden);
    if (!shape.tied) matrix("output.weight", output_dtype, shape.hidden, shape.vocabulary);
    if (shape.rope_factor > 0) vector("rope_freqs.weight", shape.head_size / 2);
    for (int layer = 0; layer < shape.layers; ++layer) {
        const std::string block = fmt::format("blk.{}.", layer);
        vector(block + "attn_norm.weight", shape.hidden);
        matrix(block + "attn_q.weight", dtype, shape.hidden, q_rows);
        matrix(block + "attn_k.weight", dtype, shape.hidden, kv_rows);
        matrix(block + "attn_v.weight", dtype, shape.hidden, kv_rows);
        matrix(block + "attn_output.weight", dtype, q_rows, shape.hidden);
        if (shape.architecture == "qwen3") {
            vector(block + "attn_q_norm.weight", shape.head_size);
            vector(block + "attn_k_norm.weight", shape.head_size);
        }
        vector(block + "ffn_norm.weight", shape.hidden);
        matrix(block + "ffn_gate.weight", dtype, shape.hidden, shape.feed_forward);
        matrix(block + "ffn_up.weight", dtype, shape.hidden, shape.feed_forward);
        matrix(block + "ffn_down.weight", dtype, shape.feed_forward, shape.hidden);
    }
}

// What each RoPE frequency is divided by in Llama 3.1 and later: 1 for the fast ones, the factor
// for those slower than the original context, blended in between.
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

bool Synthetic::IsSpec(std::string_view spec) {
    return spec.starts_with(kPrefix);
}

Result<Synthetic> Synthetic::Make(const std::string& spec, uint64_t seed) {
    WEFT_CHECK(IsSpec(spec));
    WEFT_ASSIGN(const Spec wanted, ParseSpec(spec));
    GgufWriter writer;
    WriteHyperParameters(writer, wanted.shape, spec);
    WriteTokenizer(writer, wanted.shape);
    WriteTensors(writer, wanted.shape, wanted.dtype);
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
    if (tensor.rows == 1) {  // the vectors: norms are 1, and the factors of RoPE
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

}  // namespace weft::formats
