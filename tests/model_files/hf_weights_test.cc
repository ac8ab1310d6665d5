// Quantized layers whose tensors are missing, have another type or shape, or are not numbers; and
// the scheme of a module. The layers are in tests/data/hf_weights_golden.safetensors.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "model_files/hf/folder.h"
#include "model_files/hf/packed.h"
#include "support/hf_folder.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

using nlohmann::json;
using support::SafeBytes;
using Parts = std::map<std::string, SafeBytes>;

// A case's tensors, to be modified.
struct Layer {
    std::string name;
    json config;
    Parts parts;
};

class Weights : public testing::Test {
  protected:
    Layer Load(const std::string& name) {
        static const std::set<std::string> older = {"awq32", "gptq4Asym", "packed4"};
        const std::string path =
            support::TestData(older.contains(name) ? "/hf_quant_golden.safetensors"
                                                   : "/hf_weights_golden.safetensors");
        const support::HfGolden golden(path);
        Layer layer{name, json::parse(golden.Text(name + "/config")), {}};
        test::TempDir dir;
        std::filesystem::create_symlink(path, dir / "model.safetensors");
        const auto files = TensorFiles::Open(dir.path());
        EXPECT_TRUE(files.ok());
        for (const SafeTensor& tensor : files->tensors()) {
            if (!tensor.name.starts_with(name + "/in/")) continue;
            SafeBytes& part = layer.parts[tensor.name.substr(name.size() + 4)];
            part = {std::string(SafeTypeName(tensor.type)), tensor.shape, {}};
            part.data.resize(tensor.bytes);
            EXPECT_TRUE(files->file(tensor).ReadAt(tensor.offset, part.data).ok());
        }
        return layer;
    }
    // The whole layer, or the error of opening or reading it. pieces: LinearParts::pieces.
    Result<std::vector<float>> Read(const Layer& layer, int64_t pieces, bool exact = false) {
        const char* key = layer.name.starts_with("mlx") ? "quantization" : "quantization_config";
        WEFT_ASSIGN(const Config config,
                    Config::Parse(json{{key, layer.config}}.dump(), "config.json"));
        WEFT_ASSIGN(const Quantization quantization, ReadQuantization(config));
        Parts named;
        for (const auto& [name, part] : layer.parts) named["m." + name] = part;
        named["other"] = {"F32", {1}, std::vector<std::byte>(4)};
        support::WriteTensors(dir_.path(), named);
        WEFT_ASSIGN(const TensorFiles files, TensorFiles::Open(dir_.path()));
        LinearParts parts =
            FindLinearParts([&](const std::string& name) { return files.Find("m." + name); });
        parts.pieces = pieces;
        parts.exact = exact;
        const std::string module = "m", folder = "folder";
        WEFT_ASSIGN(const MatrixPtr matrix,
                    PackedLinear(parts, quantization, files, module, folder));
        std::vector<std::byte> out(matrix->BytesOf(matrix->rows(), matrix->cols()));
        WEFT_TRY(matrix->Read({0, matrix->rows(), 0, matrix->cols()}, out));
        std::vector<float> values(static_cast<size_t>(matrix->rows() * matrix->cols()));
        DequantizeRow(matrix->dtype(), out, values);
        return values;
    }
    // "": no error.
    std::string ErrorOf(const Layer& layer, int64_t pieces = 1) {
        const auto read = Read(layer, pieces);
        return read.ok() ? "" : read.error().message;
    }
    std::vector<float> ValuesOf(const Layer& layer, int64_t pieces = 1) {
        const auto read = Read(layer, pieces);
        EXPECT_TRUE(read.ok()) << read.error().message;
        return read.ok() ? *read : std::vector<float>();
    }
    void Expect(const std::string& name, const std::function<void(Layer&)>& change,
                const std::string& word) {
        Layer layer = Load(name);
        EXPECT_EQ(ErrorOf(layer), "") << name;
        change(layer);
        const std::string error = ErrorOf(layer);
        EXPECT_NE(error.find(word), std::string::npos) << name << ": " << error;
    }

    test::TempDir dir_;
};

void Fill(SafeBytes& part, uint8_t byte) {
    std::ranges::fill(part.data, std::byte{byte});
}
std::vector<std::byte> FloatBytes(const std::vector<float>& values) {
    return support::BytesOfValues(values);
}
void FillFloats(SafeBytes& part, float value) {
    std::vector<float> floats(part.data.size() / sizeof(float), value);
    part.data = support::BytesOfValues(floats);
}

TEST_F(Weights, MissingPartsAreNamed) {
    const std::vector<std::pair<const char*, const char*>> needed = {
        {"ctFp8Channel", "weight_scale"},
        {"ctInt8Channel", "weight_scale"},
        {"ctNvfp4", "weight_scale"},
        {"ctNvfp4", "weight_global_scale"},
        {"ctMxfp4", "weight_scale"},
        {"moFp8", "weight_scale"},
        {"moNvfp4", "weight_scale"},
        {"moNvfp4", "weight_scale_2"},
        {"mlx4", "scales"},
        {"mlx4", "biases"},
        {"mlxNvfp4", "scales"},
        {"bnbNf4", "weight.absmax"},
        {"bnbNf4", "weight.quant_map"},
        {"bnbNf4Nested", "weight.nested_absmax"},
        {"bnbNf4Nested", "weight.nested_quant_map"},
        {"bnbInt8", "SCB"}};
    for (const auto& [name, part] : needed) {
        const std::string last = std::string(part).substr(std::string(part).rfind('.') + 1);
        Expect(
            name, [&](Layer& layer) { ASSERT_EQ(layer.parts.erase(part), 1u) << part; }, last);
        Expect(
            name, [&](Layer& layer) { layer.parts.erase(part); }, "'m'");
    }
    Expect(
        "bnbNf4", [](Layer& layer) { layer.parts.erase("weight.quant_state.bitsandbytes__nf4"); },
        "has no weight.quant_state");
    Expect(
        "ctInt8Asym", [](Layer& layer) { layer.parts.erase("weight_zero_point"); },
        "has no weight_zero_point");
}

// One row fewer, one dim more, another dtype of the same size.
TEST_F(Weights, WrongShapesAndTypesAreNamed) {
    const std::vector<std::pair<const char*, const char*>> parts = {
        {"ctFp8Channel", "weight_scale"},
        {"ctFp8Block", "weight_scale"},
        {"ctInt8Channel", "weight_scale"},
        {"ctInt8Asym", "weight_zero_point"},
        {"ctNvfp4", "weight_scale"},
        {"ctNvfp4Narrow", "weight_scale"},
        {"ctMxfp4", "weight_scale"},
        {"ctMxfp8", "weight_scale"},
        {"moNvfp4", "weight_scale"},
        {"moMxfp8", "weight_scale"},
        {"mlx4", "scales"},
        {"mlx4", "biases"},
        {"mlxMxfp4", "scales"},
        {"mlxMxfp8", "scales"},
        {"mlxNvfp4", "scales"},
        {"bnbNf4", "weight.absmax"},
        {"bnbNf4Nested", "weight.absmax"},
        {"bnbNf4Nested", "weight.nested_absmax"},
        {"bnbNf4", "weight.quant_map"},
        {"bnbInt8", "SCB"}};
    for (const auto& [name, part] : parts) {
        Expect(
            name,
            [&](Layer& layer) {
                SafeBytes& own = layer.parts.at(part);
                const size_t row = own.data.size() / static_cast<size_t>(own.shape[0]);
                own.data.resize(own.data.size() + row);
                ++own.shape[0];
            },
            "'m'");
        Expect(
            name,
            [&](Layer& layer) {
                SafeBytes& own = layer.parts.at(part);
                const bool four = own.dtype == "F32";
                const bool two = own.dtype == "BF16" || own.dtype == "F16";
                own.dtype = four ? "I32" : two ? "I16" : "BOOL";
            },
            "'m'");
    }
    for (const char* name : {"ctFp8Channel", "ctInt8Channel", "moFp8", "mlx4", "bnbInt8"}) {
        Expect(
            name,
            [](Layer& layer) {
                SafeBytes& own = layer.parts.at("weight");
                own.shape = {own.shape[0] * own.shape[1]};
            },
            "'m'");
    }
    Expect(
        "moNvfp4", [](Layer& layer) { layer.parts.at("weight").dtype = "I8"; }, "'m'");
    Expect(
        "bnbNf4", [](Layer& layer) { layer.parts.at("weight").dtype = "BOOL"; }, "'m'");
    Expect(
        "mlx4", [](Layer& layer) { layer.parts.at("weight").dtype = "I32"; }, "expected U32");
}

TEST_F(Weights, NonFiniteScalesAreRefused) {
    const auto nan16 = [](const char* part) {
        return [part](Layer& layer) { Fill(layer.parts.at(part), 0xff); };
    };
    for (const char* name : {"ctFp8Channel", "ctFp8Block", "ctInt8Channel", "ctMxfp8", "moMxfp8"}) {
        Expect(name, nan16("weight_scale"), "a scale is");
    }
    for (const char* name : {"ctNvfp4", "ctNvfp4Narrow", "moNvfp4"}) {
        Expect(name, nan16("weight_scale"), "scale");
    }
    Expect(
        "ctNvfp4", [](Layer& layer) { Fill(layer.parts.at("weight_scale"), 0x81); },
        "a scale of 16 weights is negative");
    Expect(
        "ctNvfp4", [](Layer& layer) { FillFloats(layer.parts.at("weight_global_scale"), 0); },
        "is 0");
    Expect(
        "moNvfp4", [](Layer& layer) { FillFloats(layer.parts.at("weight_scale_2"), INFINITY); },
        "a scale is inf");
    Expect("mlx4", nan16("biases"), "a scale is");
    Expect("bnbNf4", nan16("weight.absmax"), "a scale is");
    Expect("bnbNf4Nested", nan16("weight.nested_absmax"), "a scale is");
    Expect("bnbInt8", nan16("SCB"), "a scale is");
    Expect("awq32", nan16("scales"), "a scale is");
    Expect("gptq4Asym", nan16("scales"), "a scale is");
    Expect("packed4", nan16("weight_scale"), "a scale is");
}

TEST_F(Weights, GroupsThatDoNotFitAreRefused) {
    for (const int64_t group : {48, 64, 1 << 20}) {
        Expect(
            "mlx4Bf16", [&](Layer& layer) { layer.config["group_size"] = group; },
            fmt::format("groups of {}", group));
    }
    Expect(
        "mlx4Bf16", [](Layer& layer) { layer.config["group_size"] = 0; }, "group_size");
    const auto state = [](const char* text) {
        return [text](Layer& layer) {
            SafeBytes& own = layer.parts.at("weight.quant_state.bitsandbytes__nf4");
            const std::string_view bytes = text;
            own.shape = {static_cast<int64_t>(bytes.size())};
            own.data.resize(bytes.size());
            std::memcpy(own.data.data(), bytes.data(), bytes.size());
        };
    };
    Expect("bnbNf4", state("[1"), "quant_state");
    Expect("bnbNf4", state(R"({"shape": [12, 128], "blocksize": 0})"), "blocksize");
    Expect("bnbNf4", state(R"({"shape": [12, 128], "blocksize": 32})"), "absmax");
    Expect("bnbNf4", state(R"({"shape": [12, 64], "blocksize": 64})"), "bytes of codes");
    Expect("bnbNf4", state(R"({"shape": [4611686018427387904, 4], "blocksize": 64})"), "shape");
    Expect(
        "ctInt8Channel",
        [](Layer& layer) {
            json& weights = layer.config["config_groups"]["group_0"]["weights"];
            weights["strategy"] = "group";
            weights["group_size"] = 7;
        },
        "groups of 7");
}

// A module's weight or scale in two forms: the choice would be ambiguous.
TEST_F(Weights, TwoFormsAreRefused) {
    const auto twice = [](const char* from, const char* to) {
        return [=](Layer& layer) { layer.parts[to] = layer.parts.at(from); };
    };
    Expect("ctFp8Block", twice("weight_scale", "weight_scale_inv"), "weight_scale_inv");
    Expect("ctFp8Channel", twice("weight", "weight_packed"), "more than one of weight");
    Expect("ctNvfp4", twice("weight_packed", "weight"), "more than one of weight");
    Expect("ctFp8Channel", twice("weight", "qweight"), "more than one of weight");
}

TEST_F(Weights, NanScalesOfFourBitsAreRefused) {
    Expect(
        "ctMxfp4", [](Layer& layer) { layer.parts.at("weight_scale").data[1] = std::byte{255}; },
        "a scale of 32 weights is NaN");
    Expect(
        "mlxMxfp4", [](Layer& layer) { layer.parts.at("scales").data[1] = std::byte{255}; },
        "a scale of 32 weights is NaN");
}

// bnb_4bit_quant_storage: the same bytes under another dtype.
// Older versions of bitsandbytes also saved the layouts of GPUs.
TEST_F(Weights, BitsAndBytesInt8IsInRows) {
    for (const uint8_t format : {0, 1, 2, 3}) {
        Layer layer = Load("bnbInt8");
        const std::vector<float> expected = ValuesOf(layer);
        layer.parts["weight_format"] = {"U8", {}, {std::byte{format}}};
        if (format == 0) {
            EXPECT_EQ(ValuesOf(layer), expected);
        } else {
            EXPECT_NE(ErrorOf(layer).find("weight_format"), std::string::npos);
        }
    }
}

TEST_F(Weights, BitsAndBytesCodesMayHaveAFloatType) {
    for (const auto& [type, bytes] : {std::pair{"BF16", 2}, std::pair{"F32", 4}}) {
        Layer layer = Load("bnbNf4");
        const std::vector<float> expected = ValuesOf(layer);
        SafeBytes& weight = layer.parts.at("weight");
        ASSERT_EQ(weight.data.size() % 4, 0u);
        weight.dtype = type;
        weight.shape = {static_cast<int64_t>(weight.data.size()) / bytes, 1};
        EXPECT_EQ(ErrorOf(layer), "");
        EXPECT_EQ(ValuesOf(layer), expected);
    }
}

// Two experts in one tensor, the second with twice the scale of the tensor.
TEST_F(Weights, StackedNvfp4HasAScaleForEachExpert) {
    Layer layer = Load("moNvfp4");
    std::vector<float> expected = ValuesOf(layer);
    const size_t one = expected.size();
    expected.resize(2 * one);
    for (size_t i = 0; i < one; ++i) expected[one + i] = 2 * expected[i];
    for (const char* name : {"weight", "weight_scale"}) {
        SafeBytes& part = layer.parts.at(name);
        const auto data = part.data;
        part.data.insert(part.data.end(), data.begin(), data.end());
        part.shape.insert(part.shape.begin(), 2);
    }
    SafeBytes& scale = layer.parts.at("weight_scale_2");
    float number = 0;
    std::memcpy(&number, scale.data.data(), sizeof number);
    scale.data = FloatBytes({number, 2 * number});
    scale.shape = {2};
    EXPECT_EQ(ValuesOf(layer, 2), expected);
    scale.data = FloatBytes({number, 2 * number, 1});
    scale.shape = {3};
    EXPECT_NE(ErrorOf(layer, 2).find("weight_scale_2"), std::string::npos) << ErrorOf(layer, 2);
}

// Activations are multiplied by pre_quant_scale; here the columns of the weight are instead.
TEST_F(Weights, AwqOfModelOptScalesColumns) {
    Layer layer = Load("moNvfp4");
    std::vector<float> expected = ValuesOf(layer);
    const auto cols = static_cast<size_t>(2 * layer.parts.at("weight").shape[1]);
    std::vector<float> scales;
    for (size_t c = 0; c < cols; ++c) scales.push_back(0.5f + 0.125f * static_cast<float>(c % 7));
    for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] = BF16ToF32(F32ToBF16(expected[i] * scales[i % cols]));
    }
    layer.config["quant_algo"] = "NVFP4_AWQ";
    layer.parts["pre_quant_scale"] = {"F32", {static_cast<int64_t>(cols)}, FloatBytes(scales)};
    EXPECT_EQ(ValuesOf(layer), expected);
    scales.pop_back();
    layer.parts["pre_quant_scale"] = {"F32", {static_cast<int64_t>(cols) - 1}, FloatBytes(scales)};
    EXPECT_NE(ErrorOf(layer).find("pre_quant_scale"), std::string::npos) << ErrorOf(layer);
}

// AutoRound's packing 'llm_compressor' has the tensors of compressed-tensors.
TEST_F(Weights, AutoRoundMayPackAsCompressedTensors) {
    const struct {
        const char *layer, *type, *packing;
        int bits;
        int group;
    } kCases[] = {{"ctMxfp4", "mx_fp", "auto_round:llm_compressor", 4, 32},
                  {"ctMxfp8", "mx_fp", "auto_round:llm_compressor", 8, 32},
                  {"ctNvfp4", "nv_fp", "auto_round:llm_compressor", 4, 16},
                  {"ctFp8Channel", "fp", "auto_round:fp8_static", 8, -1},
                  {"ctFp8Tensor", "fp", "auto_round:llm_compressor", 8, 0},
                  {"ctInt8Channel", "int", "auto_round:llm_compressor", 8, -1}};
    for (const auto& one : kCases) {
        SCOPED_TRACE(one.layer);
        Layer layer = Load(one.layer);
        const std::vector<float> expected = ValuesOf(layer);
        layer.config = {{"quant_method", "auto-round"},
                        {"packing_format", one.packing},
                        {"data_type", one.type},
                        {"bits", one.bits},
                        {"group_size", one.group},
                        {"sym", true},
                        {"act_bits", 8}};
        EXPECT_EQ(ErrorOf(layer), "");
        EXPECT_EQ(ValuesOf(layer), expected);
    }
}

// A stream of `bits`-bit codes in the words of a column: GPTQ's order.
SafeBytes Stream(const std::vector<uint32_t>& codes, int64_t streams, int bits, bool along_rows) {
    const auto each = static_cast<int64_t>(codes.size()) / streams, words = each * bits / 32;
    std::vector<int32_t> packed(static_cast<size_t>(words * streams));
    for (int64_t s = 0; s < streams; ++s) {
        for (int64_t i = 0; i < each * bits; ++i) {
            const uint32_t code = codes[static_cast<size_t>(s * each + i / bits)];
            const int64_t word = i / 32, at = along_rows ? word * streams + s : s * words + word;
            if (code >> i % bits & 1) packed[static_cast<size_t>(at)] |= 1 << i % 32;
        }
    }
    const std::vector<int64_t> shape =
        along_rows ? std::vector<int64_t>{words, streams} : std::vector<int64_t>{streams, words};
    return {"I32", shape, support::BytesOfValues(packed)};
}

TEST_F(Weights, GptqMayHaveTwoOrThreeBits) {
    constexpr int64_t kIn = 96, kOut = 32, kGroup = 32;
    for (const int bits : {2, 3, 4}) {
        const auto most = uint32_t{1} << bits;
        std::vector<uint32_t> codes, zeros;
        std::vector<uint16_t> scales(kIn / kGroup * kOut);
        for (int64_t i = 0; i < kIn * kOut; ++i) {
            codes.push_back(static_cast<uint32_t>(i * 2654435761 >> 7) % most);
        }
        for (size_t i = 0; i < scales.size(); ++i) {
            zeros.push_back(static_cast<uint32_t>(i * 7 + 1) % most);
            scales[i] = F32ToF16(0x1p-4f * static_cast<float>(1 + i % 5));
        }
        const json config = {
            {"quant_method", "auto-round"}, {"bits", bits}, {"group_size", kGroup}};
        Layer layer{"gptq", config, {}};
        layer.parts["qweight"] = Stream(codes, kOut, bits, true);
        layer.parts["qzeros"] = Stream(zeros, kIn / kGroup, bits, false);
        layer.parts["scales"] = {"F16", {kIn / kGroup, kOut}, support::BytesOfValues(scales)};
        for (const bool plus_one : {true, false}) {
            layer.config["packing_format"] = plus_one ? "auto_round:auto_gptq" : "auto_round";
            std::vector<float> expected;
            for (int64_t i = 0; i < kIn * kOut; ++i) {
                const auto at = static_cast<size_t>(i % kIn / kGroup * kOut + i / kIn);
                const auto zero = static_cast<int>(zeros[at]) + (plus_one ? 1 : 0);
                expected.push_back(static_cast<float>(static_cast<int>(codes[size_t(i)]) - zero) *
                                   F16ToF32(scales[at]));
            }
            EXPECT_EQ(ErrorOf(layer), "") << bits;
            EXPECT_EQ(ValuesOf(layer), expected) << bits << " bits, " << plus_one;
        }
    }
}

// Rounding could change a router's choice of experts.
TEST_F(Weights, RoutersOfMlxAreNotRounded) {
    const Layer layer = Load("mlx8");
    const auto halves = [&](const char* name) {
        const SafeBytes& part = layer.parts.at(name);
        std::vector<uint16_t> read(part.data.size() / 2);
        std::memcpy(read.data(), part.data.data(), part.data.size());
        std::vector<float> values;
        for (const uint16_t half : read) {
            values.push_back(part.dtype == "F16" ? F16ToF32(half) : BF16ToF32(half));
        }
        return values;
    };
    const std::vector<float> scales = halves("scales"), biases = halves("biases");
    const std::vector<std::byte>& codes = layer.parts.at("weight").data;
    const size_t group = codes.size() / scales.size();
    std::vector<float> expected;
    for (size_t i = 0; i < codes.size(); ++i) {
        expected.push_back(static_cast<float>(std::to_integer<int>(codes[i])) * scales[i / group] +
                           biases[i / group]);
    }
    const auto read = Read(layer, 1, true);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(*read, expected);
    // Other matrices are F16: BF16 would be off by up to a quarter of a code.
    const auto others = Read(layer, 1);
    ASSERT_TRUE(others.ok()) << others.error().message;
    for (size_t i = 0; i < expected.size(); ++i) {
        const float bound = std::max(0x1p-11f * std::fabs(expected[i]), 0x1p-25f);
        ASSERT_LE(std::fabs((*others)[i] - expected[i]), bound) << i;
    }
}

TEST_F(Weights, ShapesMayBeI32) {
    Layer layer = Load("packed4");
    const std::vector<float> expected = ValuesOf(layer);
    SafeBytes& shape = layer.parts.at("weight_shape");
    std::vector<int64_t> dims(2);
    std::memcpy(dims.data(), shape.data.data(), 16);
    shape = {"I32", {2}, support::BytesOfValues(std::vector<int32_t>(dims.begin(), dims.end()))};
    EXPECT_EQ(ErrorOf(layer), "");
    EXPECT_EQ(ValuesOf(layer), expected);
    shape = {"I32", {1}, support::BytesOfValues(std::vector<int32_t>{1})};
    EXPECT_NE(ErrorOf(layer).find("weight_shape"), std::string::npos);
}

// ModelOpt's signed 4-bit integers: a byte has two rows, the first in its low bits.
TEST_F(Weights, IntegersOfModelOpt) {
    constexpr int64_t kOut = 6, kIn = 64, kGroup = 32;
    std::vector<uint8_t> bytes(kOut / 2 * kIn);
    std::vector<float> scales, expected(kOut * kIn);
    for (int64_t i = 0; i < kOut * kIn / kGroup; ++i) scales.push_back(0x1p-3f * float(1 + i));
    for (int64_t i = 0; i < kOut * kIn; ++i) {
        const int64_t row = i / kIn, col = i % kIn, code = i * 5 % 16 - 8;
        bytes[static_cast<size_t>(row / 2 * kIn + col)] |=
            static_cast<uint8_t>((code & 15) << row % 2 * 4);
        expected[static_cast<size_t>(i)] =
            static_cast<float>(code) * scales[static_cast<size_t>(i / kGroup)];
    }
    std::vector<uint16_t> halves;
    for (const float scale : scales) halves.push_back(F32ToBF16(scale));
    const json config = {{"quant_method", "modelopt"},
                         {"quant_algo", "MIXED_PRECISION"},
                         {"exclude_modules", {"lm_head"}},
                         {"quantized_layers",
                          {{"m", {{"quant_algo", "W4A16_AWQ"}, {"group_size", kGroup}}},
                           {"n", {{"quant_algo", "W8A16"}}},
                           {"o", {{"quant_algo", nullptr}}},
                           {"p", {{"quant_algo", "W4A8_MXFP4_FP8"}}}}}};
    Layer layer{"integers", config, {}};
    layer.parts["weight"] = {"U8", {kOut / 2, kIn}, support::BytesOfValues(bytes)};
    layer.parts["weight_scale"] = {"BF16", {kOut, kIn / kGroup}, support::BytesOfValues(halves)};
    EXPECT_EQ(ErrorOf(layer), "");
    EXPECT_EQ(ValuesOf(layer), expected);
    layer.config["quantized_layers"]["m"]["quant_algo"] = "NVFP4_SVD";
    EXPECT_NE(ErrorOf(layer).find("NVFP4_SVD"), std::string::npos);
}

// ---- Schemes of modules -------------------------------------------------------------------------

Result<Quantization> Read(const json& config) {
    const auto parsed = Config::Parse(json{{"quantization_config", config}}.dump(), "config.json");
    return ReadQuantization(*parsed);
}

json Group(std::vector<std::string> targets, const char* type, int bits, const char* strategy,
           int group = 0) {
    json weights = {{"type", type}, {"num_bits", bits}, {"strategy", strategy}};
    if (group != 0) weights["group_size"] = group;
    return {{"targets", targets}, {"weights", weights}, {"input_activations", nullptr}};
}

TEST(Schemes, TargetsOfCompressedTensors) {
    const auto read = Read(
        {{"quant_method", "compressed-tensors"},
         {"format", "mixed-precision"},
         {"ignore", {"lm_head"}},
         {"config_groups",
          {{"a", Group({"re:.*self_attn\\.(q|k|v)_proj$"}, "float", 8, "channel")},
           {"b", Group({"re:.*mlp.*", "model.layers.1.self_attn.o_proj"}, "int", 4, "group", 32)},
           {"c", Group({"Linear"}, "int", 8, "channel")},
           {"d", {{"targets", {"Attention"}}, {"weights", nullptr}}}}}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    const auto bits = [&](const char* module) {
        const Scheme* scheme = read->Of(module);
        return scheme == nullptr ? 0 : scheme->bits * (scheme->floats ? -1 : 1);
    };
    EXPECT_EQ(bits("model.layers.0.self_attn.q_proj"), -8);
    EXPECT_EQ(bits("model.layers.0.mlp.experts.7.up_proj"), 4);
    EXPECT_EQ(bits("model.layers.0.self_attn.o_proj"), 8);
    EXPECT_EQ(bits("model.layers.1.self_attn.o_proj"), 4);
    EXPECT_EQ(bits("model.language_model.layers.1.self_attn.o_proj"), 4);
    EXPECT_EQ(bits("model.embed_tokens"), 0);  // the classes do not include Embedding
}

// compressed-tensors tries the expressions of all groups in the order of their texts.
TEST(Schemes, ExpressionsOfAllGroupsAreTriedInOrder) {
    const json four = Group({"re:.*mlp.*"}, "int", 4, "group", 32);
    const json eight = Group({"re:.*down_proj.*"}, "int", 8, "channel");
    for (const bool first : {true, false}) {
        const auto read =
            Read({{"quant_method", "compressed-tensors"},
                  {"format", "mixed-precision"},
                  {"config_groups",
                   {{"group_0", first ? four : eight}, {"group_1", first ? eight : four}}}});
        ASSERT_TRUE(read.ok()) << read.error().message;
        EXPECT_EQ(read->Of("model.layers.0.mlp.down_proj")->bits, 8);
        EXPECT_EQ(read->Of("model.layers.0.mlp.up_proj")->bits, 4);
    }
}

// An expression must match from the start of a name, including the model's prefix.
TEST(Schemes, ExpressionsMatchWholeNames) {
    const auto read = Read({{"quant_method", "compressed-tensors"},
                            {"format", "mixed-precision"},
                            {"config_groups",
                             {{"a", Group({"re:layers\\.0\\..*"}, "int", 8, "channel")},
                              {"b", Group({"re:model\\.layers\\.1\\..*"}, "int", 8, "channel")},
                              {"c", Group({"Linear"}, "int", 4, "group", 32)}}}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->Of("model.layers.0.mlp.up_proj")->bits, 4);
    EXPECT_EQ(read->Of("model.layers.1.mlp.up_proj")->bits, 8);
    EXPECT_EQ(read->Of("model.language_model.layers.1.mlp.up_proj")->bits, 8);
}

TEST(Schemes, FusedModulesApplyToTheirParts) {
    const auto read =
        Read({{"quant_method", "compressed-tensors"},
              {"format", "mixed-precision"},
              {"config_groups",
               {{"a", Group({"model.layers.0.self_attn.qkv_proj"}, "int", 8, "channel")},
                {"b", Group({"re:.*gate_up_proj"}, "int", 4, "group", 32)}}}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_NE(read->Of("model.layers.0.self_attn.k_proj"), nullptr);
    EXPECT_EQ(read->Of("model.layers.0.self_attn.k_proj")->bits, 8);
    EXPECT_EQ(read->Of("model.layers.0.mlp.up_proj")->bits, 4);
    EXPECT_EQ(read->Of("model.layers.0.mlp.down_proj"), nullptr);
}

// The first expression of the file that matches a module gives its bits, as in GPTQModel.
TEST(Schemes, ExpressionsAreTriedInTheOrderOfTheFile) {
    for (const bool first : {true, false}) {
        const std::string eight = R"("+:.*\\.5\\..*": {"bits": 8})",
                          three = R"(".*mlp": {"bits": 3})";
        const std::string rules = first ? eight + ", " + three : three + ", " + eight;
        for (const std::string& text :
             {R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "dynamic": {)" + rules,
              R"({"quantization_config": {"quant_method": "auto-round", "bits": 4,
                  "packing_format": "auto_round:auto_gptq", "extra_config": {)" +
                  rules}) {
            std::string whole = text + "}}}";
            if (whole.find("auto-round") != whole.npos) {
                whole.replace(whole.find("+:"), 2, "");  // (not a prefix there)
            }
            const auto config = Config::Parse(whole, "config.json");
            ASSERT_TRUE(config.ok()) << config.error().message;
            const auto read = ReadQuantization(*config, whole);
            ASSERT_TRUE(read.ok()) << read.error().message;
            EXPECT_EQ(read->Of("model.layers.5.mlp.up_proj")->bits, first ? 8 : 3) << whole;
            EXPECT_EQ(read->Of("model.layers.6.mlp.up_proj")->bits, 3);
        }
    }
}

TEST(Schemes, MixedBitsOfAutoRoundGptqAndMlx) {
    const json auto_round = {{"quant_method", "auto-round"},
                             {"packing_format", "auto_round:auto_gptq"},
                             {"bits", 4},
                             {"group_size", 128},
                             {"extra_config",
                              {{"model.layers.0.mlp.up_proj", {{"bits", 8}}},
                               {".*self_attn.*", {{"bits", 8}, {"group_size", 32}}},
                               {"lm_head", {{"bits", 16}, {"data_type", "float"}}}}}};
    auto read = Read(auto_round);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->method, Method::kGptq);
    EXPECT_TRUE(read->zero_plus_one);
    EXPECT_EQ(read->Of("model.layers.0.mlp.up_proj")->bits, 8);
    EXPECT_EQ(read->Of("model.layers.0.mlp.up_proj")->group, 128);
    EXPECT_EQ(read->Of("model.layers.1.mlp.up_proj")->bits, 4);
    EXPECT_EQ(read->Of("model.layers.1.self_attn.q_proj")->group, 32);
    json awq = auto_round;
    awq.erase("extra_config");
    awq["packing_format"] = "auto_round:auto_awq";
    EXPECT_EQ(Read(awq)->method, Method::kAwq);
    awq["bits"] = 2;
    EXPECT_NE(Read(awq).error().message.find("AutoRound of 2 bits"), std::string::npos);
    awq["packing_format"] = "auto_round:tritonv2_zp";
    EXPECT_NE(Read(awq).error().message.find("tritonv2_zp"), std::string::npos);

    read = Read({{"quant_method", "gptq"},
                 {"bits", 4},
                 {"group_size", 128},
                 {"dynamic", {{"+:.*down_proj", {{"bits", 8}}}, {"-:.*gate", json::object()}}}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->Of("model.layers.1.mlp.down_proj")->bits, 8);
    EXPECT_EQ(read->Of("model.layers.1.mlp.up_proj")->bits, 4);

    read = Read({{"bits", 4},
                 {"group_size", 64},
                 {"model.layers.0.mlp.down_proj", {{"bits", 8}, {"group_size", 32}}},
                 {"lm_head", false}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->Of("model.layers.0.mlp.down_proj")->bits, 8);
    EXPECT_EQ(read->Of("model.layers.1.mlp.down_proj")->group, 64);
}

// The router of an mxfp4 model has 8 bits, and no mode: the default, affine.
TEST(Schemes, ModulesOfMlxAreAffineByDefault) {
    const json config = {{"bits", 4},
                         {"group_size", 32},
                         {"mode", "mxfp4"},
                         {"model.layers.0.mlp.gate", {{"bits", 8}, {"group_size", 64}}}};
    const auto parsed = Config::Parse(json{{"quantization", config}}.dump(), "config.json");
    const auto read = ReadQuantization(*parsed);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->Of("model.layers.0.mlp.up_proj")->mode, MlxMode::kMxfp4);
    const Scheme* router = read->Of("model.layers.0.mlp.gate");
    EXPECT_EQ(router->mode, MlxMode::kAffine);
    EXPECT_EQ(router->bits, 8);
    EXPECT_EQ(router->group, 64);
}

TEST(Schemes, AQuantizedCacheAloneLeavesWeightsPlain) {
    const auto read = Read(
        {{"quant_method", "modelopt"}, {"quant_algo", nullptr}, {"kv_cache_quant_algo", "FP8"}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->method, Method::kNone);
    EXPECT_EQ(
        Read({{"quant_method", "auto-round"}, {"packing_format", "auto_round:fake"}, {"bits", 4}})
            ->method,
        Method::kNone);
}

TEST(Schemes, OptionsThatChangeResultsAreRefused) {
    json config = {{"quant_method", "compressed-tensors"},
                   {"format", "float-quantized"},
                   {"config_groups", {{"a", Group({"Linear"}, "float", 8, "channel")}}}};
    ASSERT_TRUE(Read(config).ok());
    const auto refusal = [&](const char* key, const json& value) {
        json changed = config;
        changed[key] = value;
        const auto read = Read(changed);
        return read.ok() ? "" : read.error().message;
    };
    EXPECT_EQ(refusal("transform_config", json::object()), "");
    EXPECT_NE(refusal("transform_config", {{"config_groups", {{"u", {{"type", "hadamard"}}}}}})
                  .find("transform_config"),
              std::string::npos);
    EXPECT_NE(refusal("sparsity_config", {{"format", "sparse-24-bitmask"}}).find("sparse-24"),
              std::string::npos);
    EXPECT_NE(refusal("format", "mxfp6-pack-quantized").find("mxfp6"), std::string::npos);
    EXPECT_NE(refusal("config_groups", {{"a", Group({"Linear"}, "int", 3, "group", 32)}})
                  .find("int 3 bits"),
              std::string::npos);
    EXPECT_NE(refusal("config_groups", {{"a", Group({"Linear"}, "float", 8, "block")}})
                  .find("block_structure"),
              std::string::npos);
    json two = {{"a", Group({"re:(unclosed"}, "float", 8, "channel")},
                {"b", Group({"Linear"}, "int", 8, "channel")}};
    EXPECT_NE(refusal("config_groups", two).find("(unclosed"), std::string::npos);
}

// ---- A folder -----------------------------------------------------------------------------------

// The values of a folder's weight, by its GGUF name.
std::vector<float> ValuesOf(const ModelSource& model, const char* name) {
    const TensorInfo* tensor = model.FindTensor(name);
    EXPECT_NE(tensor, nullptr) << name;
    const auto values = model.ReadFloats(*tensor);
    EXPECT_TRUE(values.ok()) << values.error().message;
    return *values;
}

// Replaces a plain weight by int8 codes with a scale of 2^-6 per row.
void PackInt8(Parts& tensors, const std::string& module) {
    SafeBytes& weight = tensors.at(module + ".weight");
    const auto rows = weight.shape[0], cols = weight.shape[1];
    weight.dtype = "I8";
    weight.data.resize(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < weight.data.size(); ++i) {
        weight.data[i] = static_cast<std::byte>(static_cast<int8_t>(i * 37 % 255) - 127);
    }
    tensors[module + ".weight_scale"] = {"BF16",
                                         {rows, 1},
                                         support::BytesOfValues(std::vector<uint16_t>(
                                             static_cast<size_t>(rows), F32ToBF16(0x1p-6f)))};
}

TEST(QuantizedFolder, ReadsInt8AndIgnoresCacheScales) {
    test::TempDir dir;
    const support::HfGolden golden;
    json config = json::parse(golden.Text("llama/config"));
    config["quantization_config"] = {
        {"quant_method", "compressed-tensors"},
        {"format", "int-quantized"},
        {"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}}},
        {"config_groups", {{"a", Group({"Linear"}, "int", 8, "channel")}}}};
    Parts tensors = golden.Tensors("llama");
    const std::string module = "model.layers.0.mlp.up_proj";
    PackInt8(tensors, module);
    const SafeBytes one = {"F32", {1}, support::BytesOfValues(std::vector<float>{1.0f})};
    for (const char* name : {"self_attn.k_scale", "self_attn.v_scale", "mlp.up_proj.input_scale",
                             "mlp.up_proj.input_global_scale", "self_attn.k_proj.output_scale"}) {
        tensors[std::string("model.layers.0.") + name] = one;
    }
    support::WriteText(dir / "config.json", config.dump());
    support::WriteTensors(dir.path(), tensors);
    const auto opened = OpenFolder(dir.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const std::vector<float> values = ValuesOf(**opened, "blk.0.ffn_up.weight");
    for (size_t i = 0; i < values.size(); ++i) {
        const int code = static_cast<int8_t>(static_cast<int8_t>(i * 37 % 255) - 127);
        ASSERT_EQ(values[i], static_cast<float>(code) * 0x1p-6f) << i;
    }
    tensors.erase(module + ".weight_scale");
    support::WriteTensors(dir.path(), tensors);
    const auto broken = OpenFolder(dir.path());
    ASSERT_FALSE(broken.ok());
    EXPECT_NE(broken.error().message.find("model.layers.0.mlp.up_proj"), std::string::npos);
}

TEST(QuantizedFolder, MlxIsReadOnlyIfWeightsAreUnchanged) {
    test::TempDir dir;
    const support::HfGolden golden;
    for (const std::string& name : golden.Cases()) {
        json config = json::parse(golden.Text(name + "/config"));
        const std::string type = config["model_type"];
        const bool same = type == "llama" || type == "glm4_moe" || type == "ministral3";
        if (type != "qwen3_next" && !same) continue;
        config["quantization"] = {{"bits", 4}, {"group_size", 32}};
        support::WriteText(dir / "config.json", config.dump());
        support::WriteTensors(dir.path(), golden.Tensors(name));
        const auto opened = OpenFolder(dir.path());
        EXPECT_EQ(opened.ok(), same) << name;
        if (opened.ok()) continue;
        EXPECT_NE(opened.error().message.find("an MLX folder"), std::string::npos);
    }
}

}  // namespace
}  // namespace weft::model_files::hf
