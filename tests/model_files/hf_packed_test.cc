// Quantized layers of Hugging Face folders against an independent unpacking, bit for bit
// (tests/data/hf_quant_golden.safetensors, made by tools/make_hf_quant_golden.py).
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

struct Case {
    const char* name;
    DType dtype;
};
void PrintTo(const Case& one, std::ostream* out) {
    *out << one.name;
}

class Packed : public testing::TestWithParam<Case> {
  protected:
    // The layer's matrix, or an error.
    Result<MatrixPtr> Open() {
        const support::HfGolden golden(kGolden);
        const std::string name = GetParam().name;
        WEFT_ASSIGN(const Config whole, Config::Parse(R"({"quantization_config":)" +
                                                          golden.Text(name + "/config") + "}",
                                                      "config.json"));
        WEFT_ASSIGN(quantization_, ReadQuantization(whole));
        std::filesystem::create_symlink(kGolden, dir_ / "model.safetensors");
        WEFT_ASSIGN(TensorFiles files, TensorFiles::Open(dir_.path()));
        files_ = std::make_unique<TensorFiles>(std::move(files));
        const auto part = [&](const char* tensor) { return files_->Find(name + "/in/" + tensor); };
        const LinearParts parts = {.weight = part("weight"),
                                   .qweight = part("qweight"),
                                   .qzeros = part("qzeros"),
                                   .scales = part("scales"),
                                   .g_idx = part("g_idx"),
                                   .packed = part("weight_packed"),
                                   .scale = part("weight_scale"),
                                   .scale_inv = part("weight_scale_inv"),
                                   .zero_point = part("weight_zero_point"),
                                   .shape = part("weight_shape"),
                                   .packed_g_idx = part("weight_g_idx")};
        expected_ = golden.Floats(name + "/out");
        return PackedLinear(parts, quantization_, *files_, name, "folder");
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

TEST_P(Packed, IsBitForBitWhatItStandsFor) {
    const auto opened = Open();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const Matrix& matrix = **opened;
    EXPECT_EQ(matrix.dtype(), GetParam().dtype);
    ASSERT_EQ(matrix.rows() * matrix.cols(), static_cast<int64_t>(expected_.size()));
    const std::vector<float> values = Values(matrix, {0, matrix.rows(), 0, matrix.cols()});
    for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], expected_[i]) << "row " << i / static_cast<size_t>(matrix.cols())
                                           << " column " << i % static_cast<size_t>(matrix.cols());
    }
}

TEST_P(Packed, AnySliceAtBlocksIsThatOfTheWhole) {
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
            ASSERT_EQ(part[i], expected_[static_cast<size_t>(r * matrix.cols() + c)]);
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

// ---- Refusals -----------------------------------------------------------------------------------

std::string Refusal(const std::string& quantization) {
    const auto config =
        Config::Parse(R"({"quantization_config":)" + quantization + "}", "config.json");
    const auto read = ReadQuantization(config.value());
    return read.ok() ? "" : read.error().message;
}

TEST(Quantization, OtherMethodsAreRefusedByName) {
    for (const char* method : {"bitsandbytes", "hqq", "eetq", "fbgemm_fp8", "nvfp4", "aqlm"}) {
        const std::string message = Refusal(fmt::format(R"({{"quant_method":"{}"}})", method));
        EXPECT_NE(message.find(fmt::format("'{}' is not supported", method)), std::string::npos);
        EXPECT_NE(message.find("awq (gemm, 4 bits), gptq"), std::string::npos);
    }
    EXPECT_NE(Refusal(R"({"quant_method":""})").find("the name of a quantization"),
              std::string::npos);
    EXPECT_NE(Refusal(R"({"quant_method":"awq","version":"gemv"})").find("gemv"),
              std::string::npos);
    EXPECT_NE(Refusal(R"({"quant_method":"gptq","bits":3})").find("3 bits"), std::string::npos);
    EXPECT_NE(
        Refusal(R"({"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"})").find("marlin"),
        std::string::npos);
    EXPECT_NE(Refusal(R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized"})")
                  .find("nvfp4"),
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

// What AutoGPTQ and AutoAWQ wrote before transformers took both in.
TEST(Quantization, OlderFilesBesideTheConfigAreRead) {
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
    support::WriteText(dir / "hf_quant_config.json", R"({"quantization": {"quant_algo": null}})");
    EXPECT_EQ(read()->method, Method::kGptq);  // (of the KV cache alone)
    support::WriteText(dir / "quantize_config.json", "[");
    EXPECT_NE(read().error().message.find("quantize_config.json"), std::string::npos);
}

}  // namespace
}  // namespace weft::model_files::hf
