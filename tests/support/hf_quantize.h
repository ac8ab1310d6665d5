// Quantizes the folder of a float model to 4- or 8-bit integers in the layouts of AWQ, GPTQ and
// compressed-tensors, and writes the same model in F32 next to it: (q - zero) * scale, with groups
// of 32 inputs. Also FP8: E4M3 codes times a scale per block or row.
//
// The layouts follow their descriptions (model_files/hf/packed.h) and do not use the code that
// reads them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "support/hf_folder.h"

namespace weft::support {

enum class HfLayout { kAwq, kGptq4, kGptq8, kPacked4, kPacked8, kFp8Blocks, kFp8Rows };

inline bool IsFp8(HfLayout layout) {
    return layout == HfLayout::kFp8Blocks || layout == HfLayout::kFp8Rows;
}
constexpr size_t kFp8Block[2] = {48, 64};  // rows and columns that share a scale

inline int BitsOf(HfLayout layout) {
    return layout == HfLayout::kGptq8 || layout == HfLayout::kPacked8 ? 8 : 4;
}

inline nlohmann::json QuantizationConfig(HfLayout layout) {
    const int bits = BitsOf(layout);
    switch (layout) {
        case HfLayout::kAwq:
            return {{"quant_method", "awq"},
                    {"bits", bits},
                    {"group_size", 32},
                    {"zero_point", true},
                    {"version", "gemm"}};
        case HfLayout::kGptq4:
        case HfLayout::kGptq8:
            return {{"quant_method", "gptq"},
                    {"bits", bits},
                    {"group_size", 32},
                    {"desc_act", false},
                    {"sym", false}};
        case HfLayout::kFp8Blocks:
            return {{"quant_method", "fp8"},
                    {"activation_scheme", "dynamic"},
                    {"fmt", "e4m3"},
                    {"weight_block_size", {kFp8Block[0], kFp8Block[1]}}};
        case HfLayout::kFp8Rows:
            return {{"quant_method", "compressed-tensors"},
                    {"format", "float-quantized"},
                    {"config_groups",
                     {{"group_0",
                       {{"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}},
                        {"targets", {"Linear"}}}}}},
                    {"ignore", {"lm_head"}}};
        case HfLayout::kPacked4:
        case HfLayout::kPacked8: break;
    }
    const nlohmann::json weights = {{"num_bits", bits},
                                    {"type", "int"},
                                    {"strategy", "group"},
                                    {"group_size", 32},
                                    {"symmetric", true}};
    return {{"quant_method", "compressed-tensors"},
            {"format", "pack-quantized"},
            {"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"Linear"}}}}}},
            {"ignore", {"lm_head"}}};
}

// A matrix in integers: q [rows, cols], zero and scale [rows, groups].
struct HfIntegers {
    size_t rows = 0, cols = 0, groups = 0;
    std::vector<uint32_t> q, zero;
    std::vector<uint16_t> scale;  // f16
    std::vector<float> values;
};

inline HfIntegers IntegersOf(const std::vector<float>& x, size_t rows, size_t cols,
                             HfLayout layout) {
    const bool symmetric = layout == HfLayout::kPacked4 || layout == HfLayout::kPacked8;
    const auto most = static_cast<float>((1 << BitsOf(layout)) - 1);
    HfIntegers m{rows, cols, cols / 32, {}, {}, {}, {}};
    for (size_t row = 0; row < rows; ++row) {
        for (size_t g = 0; g < m.groups; ++g) {
            const float* group = x.data() + row * cols + g * 32;
            const auto [low, high] = std::minmax_element(group, group + 32);
            const float peak = std::max(std::abs(*low), std::abs(*high));
            const float wide = symmetric ? 2 * peak : *high - *low;
            const uint16_t scale = F32ToF16(wide / most);
            const float s = F16ToF32(scale);
            // GPTQ's first format stores zero - 1.
            const float zero =
                symmetric ? (most + 1) / 2 : std::clamp(std::round(-*low / s), 1.0f, most);
            m.scale.push_back(scale);
            m.zero.push_back(static_cast<uint32_t>(zero));
            for (size_t i = 0; i < 32; ++i) {
                const float q = std::clamp(std::round(group[i] / s) + zero, 0.0f, most);
                m.q.push_back(static_cast<uint32_t>(q));
                m.values.push_back((q - zero) * s);
            }
        }
    }
    return m;
}

// Packs the last dimension of [lines, fields] into 32-bit words: field order[i] of a word is at bit
// i * bits. at(line, field) returns a field.
template <typename At>
std::vector<uint32_t> Words32(size_t lines, size_t fields, int bits, bool awq, const At& at) {
    constexpr std::array<size_t, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};
    const auto per = static_cast<size_t>(32 / bits);
    std::vector<uint32_t> words;
    for (size_t line = 0; line < lines; ++line) {
        for (size_t field = 0; field < fields; field += per) {
            uint32_t word = 0;
            for (size_t i = 0; i < per; ++i) {
                word |= at(line, field + (awq ? kAwqOrder[i] : i))
                        << (i * static_cast<size_t>(bits));
            }
            words.push_back(word);
        }
    }
    return words;
}

template <typename T>
std::vector<T> Turned(const std::vector<T>& x, size_t rows, size_t cols) {
    std::vector<T> turned;
    for (size_t c = 0; c < cols; ++c) {
        for (size_t r = 0; r < rows; ++r) turned.push_back(x[r * cols + c]);
    }
    return turned;
}

// Adds the tensors of `module`.
inline void AddIntegers(std::map<std::string, SafeBytes>& tensors, const std::string& module,
                        const HfIntegers& m, HfLayout layout) {
    const int bits = BitsOf(layout);
    const auto per = static_cast<size_t>(32 / bits);
    const auto add = [&](const char* name, const char* dtype, size_t rows, size_t cols,
                         const auto& values) {
        tensors[module + name] = {
            dtype, {static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, BytesOfValues(values)};
    };
    const auto by_row = [&](size_t row, size_t col) { return m.q[row * m.cols + col]; };
    const auto by_input = [&](size_t col, size_t row) { return m.q[row * m.cols + col]; };
    if (layout == HfLayout::kPacked4 || layout == HfLayout::kPacked8) {
        add(".weight_packed", "I32", m.rows, m.cols / per,
            Words32(m.rows, m.cols, bits, false, by_row));
        add(".weight_scale", "F16", m.rows, m.groups, m.scale);
        const std::vector<int64_t> shape = {static_cast<int64_t>(m.rows),
                                            static_cast<int64_t>(m.cols)};
        tensors[module + ".weight_shape"] = {"I64", {2}, BytesOfValues(shape)};
        return;
    }
    const bool awq = layout == HfLayout::kAwq;
    const auto zero = [&](size_t group, size_t row) {
        return m.zero[row * m.groups + group] - (awq ? 0 : 1);
    };
    add(".qzeros", "I32", m.groups, m.rows / per, Words32(m.groups, m.rows, bits, awq, zero));
    add(".scales", "F16", m.groups, m.rows, Turned(m.scale, m.rows, m.groups));
    if (awq) {
        add(".qweight", "I32", m.cols, m.rows / per, Words32(m.cols, m.rows, bits, true, by_input));
        return;
    }
    add(".qweight", "I32", m.cols / per, m.rows,
        Turned(Words32(m.rows, m.cols, bits, false, by_row), m.rows, m.cols / per));
    std::vector<int32_t> group_of;
    for (size_t i = 0; i < m.cols; ++i) group_of.push_back(static_cast<int32_t>(i / 32));
    tensors[module + ".g_idx"] = {"I32", {static_cast<int64_t>(m.cols)}, BytesOfValues(group_of)};
}

// The E4M3 code nearest to x, which is at most 448.
inline uint8_t E4m3Near(float x) {
    uint8_t best = 0;
    float least = INFINITY;
    for (int code = 0; code < 127; ++code) {
        const int exponent = code >> 3, mantissa = code & 7;
        const float value = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
        const float error = std::abs(std::abs(x) - value);
        if (error >= least) continue;
        least = error;
        best = static_cast<uint8_t>(code);
    }
    return best | (std::signbit(x) ? 0x80 : 0);
}
inline float E4m3Value(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                     : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    return code >= 0x80 ? -size : size;
}

// Adds the tensors of `module` and sets `x` to their dequantized values.
inline void AddFp8(std::map<std::string, SafeBytes>& tensors, const std::string& module,
                   std::vector<float>& x, size_t rows, size_t cols, HfLayout layout) {
    const bool blocks = layout == HfLayout::kFp8Blocks;
    const size_t high = blocks ? kFp8Block[0] : 1, wide = blocks ? kFp8Block[1] : cols;
    const size_t down = (rows + high - 1) / high, across = (cols + wide - 1) / wide;
    std::vector<float> scales(down * across, 0.0f);
    const auto scale_of = [&](size_t i) -> float& {
        return scales[i / cols / high * across + i % cols / wide];
    };
    for (size_t i = 0; i < x.size(); ++i) {
        scale_of(i) = std::max(scale_of(i), std::abs(x[i]) / 447.0f);
    }
    std::vector<uint8_t> codes;
    for (size_t i = 0; i < x.size(); ++i) {
        codes.push_back(E4m3Near(x[i] / scale_of(i)));
        x[i] = E4m3Value(codes.back()) * scale_of(i);
    }
    const auto dim = [](size_t n) { return static_cast<int64_t>(n); };
    tensors[module + ".weight"] = {"F8_E4M3", {dim(rows), dim(cols)}, BytesOfValues(codes)};
    tensors[module + (blocks ? ".weight_scale_inv" : ".weight_scale")] = {
        "F32", {dim(down), dim(across)}, BytesOfValues(scales)};
}

// The projections of attention, of dense MLPs and of experts are quantized; routers, shared
// experts, the embedding and the head are not.
inline bool IsQuantizedModule(const std::string& name) {
    return name.ends_with("_proj.weight") && name.find("shared_expert") == name.npos;
}

// A byte-level vocabulary of the golden models' 83 tokens.
inline std::string SmallTokenizer() {
    nlohmann::json vocab = nlohmann::json::object();
    for (int id = 0; id < 80; ++id) vocab[std::string(1, static_cast<char>(0x21 + id))] = id;
    const nlohmann::json json = {
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}}};
    return json.dump();
}

// The golden models' dense MLPs have 64 columns, which two ranks can't share. FP8 blocks have 64
// columns, so all FP8 widths are whole blocks.
inline int64_t Widened(int64_t size, HfLayout layout) {
    if (IsFp8(layout) && (size == 48 || size == 96)) return 128;
    if (IsFp8(layout) && size == 32) return 64;
    return size == 64 ? 192 : size;
}

inline void WidenConfig(nlohmann::json& config, HfLayout layout) {
    config["intermediate_size"] = Widened(config["intermediate_size"], layout);
    if (!IsFp8(layout)) return;
    for (const char* key :
         {"hidden_size", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
        if (config.contains(key)) config[key] = Widened(config[key], layout);
    }
    config["num_attention_heads"] = 8;
    config["num_key_value_heads"] = 4;
}

// A tensor that stays in a float type.
inline SafeBytes PlainTensor(const std::string& name, const SafeBytes& golden, HfLayout layout) {
    if (!IsFp8(layout)) return golden;
    std::vector<int64_t> shape = golden.shape;
    for (int64_t& size : shape) size = Widened(size, layout);
    const int64_t rows = shape.size() == 1 ? 1 : shape[0], cols = shape.back();
    return {"F32", shape, BytesOfValues(MakeTensor(name, rows, cols).data)};
}

// Writes both folders of a golden case, with its own weights and wider dense MLPs.
inline void WriteQuantized(const std::string& name, HfLayout layout, const std::string& quantized,
                           const std::string& floats) {
    const HfGolden golden;
    std::map<std::string, SafeBytes> packed, plain;
    for (const auto& [tensor, bytes] : golden.Tensors(name)) {
        if (!IsQuantizedModule(tensor)) {
            packed[tensor] = plain[tensor] = PlainTensor(tensor, bytes, layout);
            continue;
        }
        const int64_t rows = Widened(bytes.shape[0], layout);
        const int64_t cols = Widened(bytes.shape[1], layout);
        const auto height = static_cast<size_t>(rows), width = static_cast<size_t>(cols);
        std::vector<float> values = MakeTensor(tensor, rows, cols).data;
        const std::string module = tensor.substr(0, tensor.rfind('.'));
        if (IsFp8(layout)) {
            AddFp8(packed, module, values, height, width, layout);
        } else {
            HfIntegers integers = IntegersOf(values, height, width, layout);
            AddIntegers(packed, module, integers, layout);
            values = std::move(integers.values);
        }
        plain[tensor] = {"F32", {rows, cols}, BytesOfValues(values)};
    }
    auto config = nlohmann::json::parse(golden.Text(name + "/config"));
    WidenConfig(config, layout);
    std::filesystem::create_directories(floats);
    WriteText(floats + "/tokenizer.json", SmallTokenizer());
    WriteText(floats + "/config.json", config.dump());
    WriteTensors(floats, plain);
    config["quantization_config"] = QuantizationConfig(layout);
    std::filesystem::create_directories(quantized);
    WriteText(quantized + "/tokenizer.json", SmallTokenizer());
    WriteText(quantized + "/config.json", config.dump());
    WriteTensors(quantized, packed, 2);
}

}  // namespace weft::support
