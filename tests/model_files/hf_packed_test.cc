// Quantized layers of Hugging Face folders against an independent unpacking, bit for bit
// (tests/data/hf_quant_golden.safetensors, made by tools/make_hf_quant_golden.py, and
// hf_weights_golden.safetensors, made by tools/make_hf_weights_golden.py).
#include <gtest/gtest.h>

#include <random>

#include "model_files/hf/packed.h"
#include "support/hf_folder.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

const std::string kGolden = support::TestData("/hf_quant_golden.safetensors");
const std::string kWeightsGolden = support::TestData("/hf_weights_golden.safetensors");

struct Case {
    const char* name;
    DType dtype;
    double tolerance = 0;  // of a value, relative
    bool weights = false;  // the case is in kWeightsGolden
};
void PrintTo(const Case& one, std::ostream* out) {
    *out << one.name;
}

class Packed : public testing::TestWithParam<Case> {
  protected:
    // The layer's matrix, or an error.
    Result<MatrixPtr> Open() {
        const std::string& path = GetParam().weights ? kWeightsGolden : kGolden;
        const support::HfGolden golden(path);
        const std::string name = GetParam().name;
        const char* key =
            name.starts_with("mlx") ? R"({"quantization":)" : R"({"quantization_config":)";
        WEFT_ASSIGN(const Config whole,
                    Config::Parse(key + golden.Text(name + "/config") + "}", "config.json"));
        WEFT_ASSIGN(quantization_, ReadQuantization(whole));
        std::filesystem::create_symlink(path, dir_ / "model.safetensors");
        WEFT_ASSIGN(TensorFiles files, TensorFiles::Open(dir_.path()));
        files_ = std::make_unique<TensorFiles>(std::move(files));
        const LinearParts parts = FindLinearParts([&](const std::string& tensor) {
            return files_->Find(fmt::format("{}/in/{}", name, tensor));
        });
        expected_ = golden.Floats(name + "/out");
        const Scheme* scheme = quantization_.Of("model.layers.0." + name);
        WEFT_CHECK(scheme != nullptr);
        return PackedLinear(parts, *scheme, *files_, name, "folder");
    }
    void ExpectValue(float value, float expected, int64_t row, int64_t col) {
        const double most = GetParam().tolerance * std::fabs(expected);
        ASSERT_TRUE(std::fabs(double{value} - double{expected}) <= most)
            << value << " beside " << expected << ", row " << row << " column " << col;
    }
    std::vector<float> Values(const Matrix& matrix, const Block& block) {
        std::vector<std::byte> bytes(matrix.BytesOf(block.rows, block.cols));
        const Status status = matrix.Read(block, bytes);
        EXPECT_TRUE(status.ok()) << status.error().message;
        std::vector<float> values(static_cast<size_t>(block.rows * block.cols));
        DequantizeRow(matrix.dtype(), bytes, values);
        return values;
    }

    test::TempDir dir_;
    Quantization quantization_;
    std::unique_ptr<TensorFiles> files_;
    std::vector<float> expected_;
};

TEST_P(Packed, EqualsTheUnpackedWeightsBitForBit) {
    const auto opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Matrix& matrix = **opened;
    EXPECT_EQ(matrix.dtype(), GetParam().dtype);
    ASSERT_EQ(matrix.rows() * matrix.cols(), static_cast<int64_t>(expected_.size()));
    const std::vector<float> values = Values(matrix, {0, matrix.rows(), 0, matrix.cols()});
    for (size_t i = 0; i < values.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        ExpectValue(values[i], expected_[i], at / matrix.cols(), at % matrix.cols());
    }
}

TEST_P(Packed, AnySliceAtBlocksEqualsTheWhole) {
    const auto opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Matrix& matrix = **opened;
    const int64_t unit = Info(matrix.dtype()).block_elements;
    std::mt19937 random(3);
    const auto below = [&](int64_t n) {
        return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    for (int repeat = 0; repeat < 40; ++repeat) {
        const int64_t row = below(matrix.rows()), rows = 1 + below(matrix.rows() - row);
        const int64_t units = matrix.cols() / unit, from = below(units);
        const int64_t count = 1 + below(units - from);
        const std::vector<float> part = Values(matrix, {row, rows, from * unit, count * unit});
        for (size_t i = 0; i < part.size(); ++i) {
            const auto at = static_cast<int64_t>(i);
            const int64_t r = row + at / (count * unit), c = from * unit + at % (count * unit);
            ExpectValue(part[i], expected_[static_cast<size_t>(r * matrix.cols() + c)], r, c);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Golden, Packed,
    testing::Values(Case{"awq32", DType::kW4}, Case{"awq64", DType::kW4},
                    Case{"gptq4Sym", DType::kW4}, Case{"gptq4Asym", DType::kW4},
                    Case{"gptq4V2", DType::kW4}, Case{"gptq8", DType::kW8},
                    Case{"gptqDescAct", DType::kF16}, Case{"packed4", DType::kW4},
                    Case{"packed4Asym", DType::kW4}, Case{"packed4Half", DType::kW4},
                    Case{"packed8Channel", DType::kW8}, Case{"packed8Asym", DType::kW8},
                    Case{"packed4Order", DType::kBF16}, Case{"packed4Single", DType::kF32},
                    Case{"fp8", DType::kBF16}),
    [](const auto& one) { return std::string(one.param.name); });

// Row r stores zero point r. The first format stores zero - 1. Blocks and values (columns in any
// order) are the same numbers.
TEST(Gptq, AllZeroPointsInBothFormatsAndBothForms) {
    constexpr float kScale = 0.25f;
    for (const int bits : {2, 3, 4, 8}) {
        const int64_t out = std::max(32, 1 << bits), cols = 32;
        const auto rows = static_cast<size_t>(out), mask = (size_t{1} << bits) - 1;
        std::vector<uint32_t> codes(static_cast<size_t>(cols * bits / 32) * rows);
        std::vector<uint32_t> zeros(rows * static_cast<size_t>(bits) / 32);
        for (size_t row = 0; row < rows; ++row) {  // every code is 0, so w = -zero * scale
            for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
                const size_t at = row * static_cast<size_t>(bits) + b;
                zeros[at / 32] |= static_cast<uint32_t>((row & mask) >> b & 1) << at % 32;
            }
        }
        using support::BytesOfValues;
        const test::TempDir dir;
        support::WriteTensors(
            dir.path(),
            {{"m.qweight", {"I32", {cols * bits / 32, out}, BytesOfValues(codes)}},
             {"m.qzeros", {"I32", {1, out * bits / 32}, BytesOfValues(zeros)}},
             {"m.scales",
              {"F16", {1, out}, BytesOfValues(std::vector<uint16_t>(rows, F32ToF16(kScale)))}},
             {"m.g_idx", {"I32", {cols}, BytesOfValues(std::vector<int32_t>(32, 0))}}});
        const auto files = TensorFiles::Open(dir.path());
        ASSERT_TRUE(files.ok()) << files.error().message;
        const LinearParts parts =
            FindLinearParts([&](const std::string& name) { return files->Find("m." + name); });
        for (const bool first_format : {true, false}) {
            for (const bool any_order : {true, false}) {
                Scheme scheme;
                scheme.method = Method::kGptq;
                scheme.bits = bits;
                scheme.group = 32;
                scheme.zero_plus_one = first_format;
                scheme.any_order = any_order;
                const auto matrix = PackedLinear(parts, scheme, *files, "m", "folder");
                ASSERT_TRUE(matrix.ok()) << matrix.error().message;
                EXPECT_EQ(Info((*matrix)->dtype()).quantized, !any_order);
                std::vector<std::byte> row((*matrix)->BytesOf(1, cols));
                std::vector<float> values(static_cast<size_t>(cols));
                for (size_t r = 0; r < rows; ++r) {
                    ASSERT_TRUE((*matrix)->Read({static_cast<int64_t>(r), 1, 0, cols}, row).ok());
                    DequantizeRow((*matrix)->dtype(), row, values);
                    const auto zero = static_cast<float>(((r & mask) + first_format) & 0xff);
                    ASSERT_EQ(values, std::vector<float>(values.size(), -zero * kScale))
                        << bits << " bits, row " << r << first_format << any_order;
                }
            }
        }
    }
}

constexpr double kF32Step = 0x1p-22;  // for a scale that is rounded twice, and the product
// (compressed-tensors rounds NVFP4 values to BF16, and mx.dequantize those of BF16 scales.)
constexpr double kBf16Step = 0x1p-8;

INSTANTIATE_TEST_SUITE_P(
    Weights, Packed,
    testing::Values(
        Case{"ctFp8Channel", DType::kBF16, 0, true}, Case{"ctFp8Tensor", DType::kBF16, 0, true},
        Case{"ctFp8Block", DType::kBF16, 0, true}, Case{"ctNaiveGroup", DType::kBF16, 0, true},
        Case{"ctInt8Channel", DType::kW8, kBf16Step, true},
        Case{"ctInt8Tensor", DType::kW8, kBf16Step, true},
        Case{"ctInt8Asym", DType::kW8, kBf16Step, true}, Case{"ctInt8Odd", DType::kBF16, 0, true},
        Case{"ctNvfp4", DType::kNVFP4, 0, true},
        Case{"ctNvfp4Scale", DType::kNVFP4, kBf16Step, true},
        Case{"ctNvfp4Narrow", DType::kBF16, 0, true}, Case{"ctMxfp4", DType::kMXFP4, 0, true},
        Case{"ctMxfp8", DType::kBF16, 0, true}, Case{"moFp8", DType::kBF16, 0, true},
        Case{"moNvfp4", DType::kNVFP4, kF32Step, true}, Case{"moMxfp8", DType::kBF16, 0, true},
        Case{"mlx4", DType::kQ4_1, 0, true}, Case{"mlx4Bf16", DType::kQ4_1, 0, true},
        Case{"mlx2", DType::kQ4_1, 0, true}, Case{"mlx3", DType::kQ4_1, 0, true},
        Case{"mlx5", DType::kQ5_1, 0, true}, Case{"mlx6", DType::kF16, kBf16Step, true},
        Case{"mlx8", DType::kF16, kBf16Step, true}, Case{"mlxMxfp4", DType::kMXFP4, 0, true},
        Case{"mlxMxfp8", DType::kBF16, 0, true}, Case{"mlxNvfp4", DType::kNVFP4, 0, true},
        Case{"mlxNvfp4Narrow", DType::kBF16, 0, true}, Case{"bnbNf4", DType::kBF16, 0, true},
        Case{"bnbNf4Nested", DType::kBF16, 0, true}, Case{"bnbFp4", DType::kBF16, 0, true},
        Case{"bnbInt8", DType::kW8, 0x1p-16, true}),
    [](const auto& one) { return std::string(one.param.name); });

// ---- Refusals -----------------------------------------------------------------------------------

std::string Refusal(const std::string& quantization) {
    const auto config =
        Config::Parse(R"({"quantization_config":)" + quantization + "}", "config.json");
    const auto read = ReadQuantization(config.value());
    return read.ok() ? "" : read.error().message;
}

TEST(Quantization, OtherMethodsAreRefusedByName) {
    for (const char* method : {"hqq", "eetq", "fbgemm_fp8", "nvfp4", "aqlm", "quark", "torchao"}) {
        const std::string message = Refusal(fmt::format(R"({{"quant_method":"{}"}})", method));
        EXPECT_NE(message.find(fmt::format("'{}' is not supported", method)), std::string::npos);
        EXPECT_NE(message.find("awq (gemm, 4 bits), gptq"), std::string::npos);
    }
    EXPECT_NE(Refusal(R"({"quant_method":""})").find("the name of a quantization"),
              std::string::npos);
    EXPECT_NE(Refusal(R"({"quant_method":"awq","version":"gemv"})").find("gemv"),
              std::string::npos);
    EXPECT_NE(Refusal(R"({"quant_method":"gptq","bits":5})").find("5 bits"), std::string::npos);
    EXPECT_NE(
        Refusal(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})").find("marlin"),
        std::string::npos);
    EXPECT_NE(Refusal(R"({"quant_method":"compressed-tensors","format":"sparse-24-bitmask"})")
                  .find("sparse-24-bitmask"),
              std::string::npos);
    EXPECT_EQ(Refusal(R"({"quant_method":"gptq","bits":4,"group_size":128})"), "");
    EXPECT_EQ(Refusal("null"), "");
    for (const char* block : {"[0,128]", "[128]", "[128,9223372036854775807]", "[1048577,1]"}) {
        EXPECT_NE(Refusal(fmt::format(R"({{"quant_method":"fp8","weight_block_size":{}}})", block))
                      .find("two numbers from 1 to 1048576"),
                  std::string::npos)
            << block;
    }
}

// Files that AutoGPTQ and AutoAWQ wrote before transformers supported both.
TEST(Quantization, SeparateConfigFilesAreRead) {
    test::TempDir dir;
    const auto read = [&] { return ReadQuantizationFile(dir.path()); };
    ASSERT_TRUE(read().ok());
    EXPECT_EQ(read()->method, Method::kNone);
    support::WriteText(dir / "quant_config.json",
                       R"({"zero_point": true, "q_group_size": 64, "w_bit": 4})");
    ASSERT_TRUE(read().ok());
    EXPECT_EQ(read()->method, Method::kAwq);
    EXPECT_EQ(read()->group, 64);
    support::WriteText(dir / "quantize_config.json",
                       R"({"bits": 8, "group_size": -1, "damp_percent": 0.01, "desc_act": true,
                           "sym": true, "true_sequential": true})");
    ASSERT_TRUE(read().ok());
    EXPECT_EQ(read()->method, Method::kGptq);
    EXPECT_EQ(read()->bits, 8);
    EXPECT_EQ(read()->group, 0);
    EXPECT_TRUE(read()->any_order);
    EXPECT_TRUE(read()->zero_plus_one);
    EXPECT_NE(read()->file_text.find("damp_percent"), std::string::npos);  // of the fingerprint
    support::WriteText(dir / "hf_quant_config.json", R"({"quantization": {"quant_algo": null}})");
    EXPECT_EQ(read()->method, Method::kGptq);  // (quantizes only the KV cache)
    support::WriteText(dir / "quantize_config.json", "[");
    EXPECT_NE(read().error().message.find("quantize_config.json"), std::string::npos);
}

}  // namespace
}  // namespace weft::model_files::hf
