// FP8 layers of Hugging Face folders become blocks of DType::kFP8: every form of scales, slices,
// and NaN codes and scales. The expected numbers are computed here with ldexp.
#include <gtest/gtest.h>

#include <random>

#include "model_files/hf/packed.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

using nlohmann::json;
using support::BytesOfValues;
using support::SafeBytes;

// Codes [rows, cols] and scales [down, across] of blocks of high x wide.
struct Fp8Layer {
    int64_t rows, cols, high, wide;
    json config;
    std::string scale_name = "weight_scale";
    std::vector<int64_t> scale_shape = {};
    std::vector<uint8_t> codes = {};
    std::vector<float> scales = {};

    int64_t down() const { return (rows + high - 1) / high; }
    int64_t across() const { return (cols + wide - 1) / wide; }
    void Fill(uint32_t seed) {
        std::mt19937 random(seed);
        codes.resize(static_cast<size_t>(rows * cols));
        for (uint8_t& code : codes) {
            do code = static_cast<uint8_t>(random());
            while ((code & 0x7f) == 0x7f);
        }
        scales.resize(static_cast<size_t>(down() * across()));
        for (float& scale : scales) {
            scale = 1e-3f + 1e-2f * static_cast<float>(random() % 100003) / 100003.0f;
        }
        if (scale_shape.empty()) scale_shape = {down(), across()};
    }
    float At(int64_t row, int64_t col) const {
        const uint8_t code = codes[static_cast<size_t>(row * cols + col)];
        return support::E4m3Value(code) *
               scales[static_cast<size_t>(row / high * across() + col / wide)];
    }
};

class Fp8 : public testing::Test {
  protected:
    Result<MatrixPtr> Open(const Fp8Layer& layer) {
        const auto whole =
            Config::Parse(json{{"quantization_config", layer.config}}.dump(), "config.json");
        WEFT_ASSIGN(quantization_, ReadQuantization(*whole));
        support::WriteTensors(
            dir_.path(),
            {{"m.weight", {"F8_E4M3", {layer.rows, layer.cols}, BytesOfValues(layer.codes)}},
             {"m." + layer.scale_name, {"F32", layer.scale_shape, BytesOfValues(layer.scales)}}});
        WEFT_ASSIGN(TensorFiles files, TensorFiles::Open(dir_.path()));
        files_ = std::make_unique<TensorFiles>(std::move(files));
        const LinearParts parts =
            FindLinearParts([&](const std::string& name) { return files_->Find("m." + name); });
        return PackedLinear(parts, quantization_, *files_, "m", "folder");
    }
    // The error of opening and reading it; "": none.
    std::string ErrorOf(const Fp8Layer& layer) {
        const auto opened = Open(layer);
        if (!opened.ok()) return opened.error().message;
        const Matrix& m = **opened;
        std::vector<std::byte> bytes(m.BytesOf(m.rows(), m.cols()));
        const Status read = m.Read({0, m.rows(), 0, m.cols()}, bytes);
        return read.ok() ? "" : read.error().message;
    }
    void ExpectSlice(const Matrix& matrix, const Fp8Layer& layer, const Block& block) {
        std::vector<std::byte> bytes(matrix.BytesOf(block.rows, block.cols));
        const Status read = matrix.Read(block, bytes);
        ASSERT_TRUE(read.ok()) << read.error().message;
        std::vector<float> values(static_cast<size_t>(block.rows * block.cols));
        DequantizeRow(matrix.dtype(), bytes, values);
        for (int64_t i = 0; i < block.rows * block.cols; ++i) {
            const int64_t row = block.row + i / block.cols, col = block.col + i % block.cols;
            ASSERT_EQ(values[static_cast<size_t>(i)], layer.At(row, col)) << row << ", " << col;
        }
    }

    test::TempDir dir_;
    Quantization quantization_;
    std::unique_ptr<TensorFiles> files_;
};

json Compressed(const char* strategy, int group = 0) {
    json weights = {{"num_bits", 8}, {"type", "float"}, {"strategy", strategy}};
    if (group != 0) weights["group_size"] = group;
    if (std::string(strategy) == "block") weights["block_structure"] = {128, 128};
    return {{"quant_method", "compressed-tensors"},
            {"format", "float-quantized"},
            {"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"Linear"}}}}}}};
}

std::vector<Fp8Layer> Layers() {
    const json deepseek = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    const json odd = {{"quant_method", "fp8"}, {"weight_block_size", {24, 192}}};
    const json model_opt = {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}};
    return {{300, 320, 128, 128, deepseek, "weight_scale_inv"},
            {50, 448, 24, 192, odd, "weight_scale_inv"},
            {20, 192, 20, 192, {{"quant_method", "fp8"}}, "weight_scale_inv", {}},
            {20, 192, 1, 192, Compressed("channel")},
            {20, 192, 20, 192, Compressed("tensor"), "weight_scale", {1}},
            {20, 256, 1, 128, Compressed("group", 128)},
            {20, 256, 1, 64, Compressed("group", 64)},
            {200, 256, 128, 128, Compressed("block")},
            {20, 128, 20, 128, model_opt, "weight_scale", {}},
            {256,
             384,
             128,
             128,
             {{"quant_method", "modelopt"}, {"quant_algo", "FP8_PB_WO"}},
             "weight_scale",
             {2, 1, 3, 1}}};
}

TEST_F(Fp8, BlocksKeepCodesAndScales) {
    std::mt19937 random(5);
    const auto below = [&](int64_t n) {
        return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    uint32_t seed = 0;
    for (Fp8Layer layer : Layers()) {
        SCOPED_TRACE(layer.config.dump());
        layer.Fill(++seed);
        const auto opened = Open(layer);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        const Matrix& m = **opened;
        ASSERT_EQ(m.dtype(), DType::kFP8);
        EXPECT_EQ(m.dtype(), MemoryType(quantization_));
        EXPECT_EQ(m.BytesOf(m.rows(), m.cols()),
                  static_cast<size_t>(layer.rows * layer.cols / 64 * 68));
        ExpectSlice(m, layer, {0, layer.rows, 0, layer.cols});
        for (int repeat = 0; repeat < 8; ++repeat) {
            const int64_t row = below(layer.rows), from = below(layer.cols / 64);
            ExpectSlice(m, layer,
                        {row, 1 + below(layer.rows - row), from * 64,
                         64 * (1 + below(layer.cols / 64 - from))});
        }
    }
}

// As the transposed keys of latent attention are read.
TEST_F(Fp8, ColumnsInsideBlocksAreConverted) {
    Fp8Layer layer = Layers()[0];
    layer.Fill(7);
    auto opened = Open(layer);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    MatrixPtr floats = Converted(std::move(*opened), DType::kF32);
    for (const Block& block : {Block{3, 7, 33, 101}, Block{290, 10, 64, 1}, Block{0, 1, 319, 1}}) {
        ExpectSlice(*floats, layer, block);
    }
    const MatrixPtr turned = Transposed(std::move(floats), 150);
    std::vector<float> column(150);
    const Status read =
        turned->Read({320 + 65, 1, 0, 150}, std::as_writable_bytes(std::span(column)));
    ASSERT_TRUE(read.ok()) << read.error().message;
    for (int64_t i = 0; i < 150; ++i) {
        EXPECT_EQ(column[static_cast<size_t>(i)], layer.At(150 + i, 65));
    }
}

// Rows or groups that are not whole blocks of 64.
TEST_F(Fp8, OtherWidthsAreBf16) {
    for (Fp8Layer layer : {Fp8Layer{20, 160, 1, 160, Compressed("channel")},
                           Fp8Layer{20, 192, 1, 96, Compressed("group", 96)},
                           Fp8Layer{64,
                                    192,
                                    32,
                                    32,
                                    {{"quant_method", "fp8"}, {"weight_block_size", {32, 32}}},
                                    "weight_scale_inv"}}) {
        layer.Fill(3);
        const auto opened = Open(layer);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        EXPECT_EQ((*opened)->dtype(), DType::kBF16);
    }
}

TEST_F(Fp8, NanIsRefused) {
    for (const int64_t cols : {192, 160}) {
        for (const uint8_t nan : {0x7f, 0xff}) {
            Fp8Layer layer{20, cols, 1, cols, Compressed("channel")};
            layer.Fill(4);
            EXPECT_EQ(ErrorOf(layer), "");
            layer.codes[static_cast<size_t>(7 * cols + 65)] = nan;
            const std::string error = ErrorOf(layer);
            EXPECT_NE(error.find("row 7, column 65 is NaN"), std::string::npos) << error;
        }
        Fp8Layer layer{20, cols, 1, cols, Compressed("channel")};
        layer.Fill(4);
        layer.scales[3] = NAN;
        EXPECT_NE(ErrorOf(layer).find("a scale is nan"), std::string::npos) << ErrorOf(layer);
    }
}

// The right number of scales, but in rows of another length: their positions are not known.
TEST_F(Fp8, ScalesOfAnotherShapeAreRefused) {
    const json blocks = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{4, 3}, {12}, {1, 6, 2}, {2, 2, 3}}) {
        Fp8Layer layer{300, 512, 128, 128, blocks, "weight_scale_inv", shape};
        layer.Fill(7);
        const std::string error = ErrorOf(layer);
        EXPECT_NE(error.find("expected 3 x 4"), std::string::npos) << error;
    }
}

}  // namespace
}  // namespace weft::model_files::hf
