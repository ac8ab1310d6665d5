// Synthetic models: the real models' sizes, weights with the right variance, the same bytes however
// they are read, and a file that reads back the same.
#include "model_files/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "model_files/gguf_writer.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

std::unique_ptr<ModelSource> SyntheticOpen(const std::string& spec) {
    Result<std::unique_ptr<ModelSource>> model = OpenModel(spec);
    WEFT_CHECK(model.ok());
    return std::move(model).value();
}

// Parameter counts as published with the models (without RoPE factors).
TEST(Synthetic, HasTheRealModelsSizes) {
    const std::pair<const char*, int64_t> sizes[] = {
        {"smollm2-135m", 134515008},      {"llama-3.2-1b", 1235814400},
        {"llama-3.1-8b", 8030261248},     {"llama-3.1-70b", 70553706496},
        {"llama-3.1-405b", 405853388800}, {"qwen3-0.6b", 596049920},
        {"qwen3-8b", 8190735360}};
    for (const auto& [name, parameters] : sizes) {
        const auto model = SyntheticOpen(std::string("synthetic:") + name);
        int64_t count = 0;
        for (const TensorInfo& tensor : model->tensors()) {
            if (tensor.name != "rope_freqs.weight") count += tensor.rows * tensor.cols;
        }
        EXPECT_EQ(count, parameters) << name;
        const std::string arch = *model->meta().String("general.architecture");
        const auto tokens = model->meta().Strings("tokenizer.ggml.tokens");
        ASSERT_TRUE(tokens.ok());
        EXPECT_EQ(tokens->size(), *model->meta().U64(arch + ".vocab_size"));
        EXPECT_EQ(std::set(tokens->begin(), tokens->end()).size(), tokens->size());
        EXPECT_EQ(model->FindTensor("token_embd.weight")->rows,
                  static_cast<int64_t>(tokens->size()));
        EXPECT_EQ(model->meta().Ints("tokenizer.ggml.token_type")->size(), tokens->size());
    }
}

// A model with fewer layers equals the first layers of the whole one, byte for byte.
TEST(Synthetic, HasTheRequestedLayers) {
    const auto whole = SyntheticOpen("synthetic:smollm2-135m:q8_0");
    const auto cut = SyntheticOpen("synthetic:smollm2-135m:q8_0:layers=2");
    EXPECT_EQ(*cut->meta().U64("llama.block_count"), 2u);
    EXPECT_EQ(cut->FindTensor("blk.2.attn_q.weight"), nullptr);
    const TensorInfo* tensor = cut->FindTensor("blk.1.attn_q.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(cut->ReadFloats(*tensor).value(),
              whole->ReadFloats(*whole->FindTensor("blk.1.attn_q.weight")).value());
    EXPECT_EQ(*SyntheticOpen("synthetic:llama-3.1-405b:layers=1")->meta().U64("llama.block_count"),
              1u);
    for (const char* spec : {"synthetic:smollm2-135m:q8_0:layers=", "synthetic:qwen3-8b:layers=0",
                             "synthetic:smollm2-135m:layers=31", "synthetic:qwen3-8b:layers=2x"}) {
        const Result<std::unique_ptr<ModelSource>> model = OpenModel(spec);
        ASSERT_FALSE(model.ok()) << spec;
        EXPECT_EQ(model.error().code, ErrorCode::kUsage);
    }
}

TEST(Synthetic, RefusesUnknownWords) {
    const Result<std::unique_ptr<ModelSource>> name = OpenModel("synthetic:gpt-9");
    ASSERT_FALSE(name.ok());
    EXPECT_EQ(name.error().code, ErrorCode::kUsage);
    EXPECT_NE(name.error().message.find("llama-3.2-1b"), std::string::npos);
    for (const char* spec : {"synthetic:smollm2-135m:q9", "synthetic:smollm2-135m:i32",
                             "synthetic:smollm2-135m:", "synthetic:smollm2-135m:q4_0:x"}) {
        const Result<std::unique_ptr<ModelSource>> type = OpenModel(spec);
        ASSERT_FALSE(type.ok()) << spec;
        EXPECT_NE(type.error().message.find("Q4_K"), std::string::npos);
    }
    EXPECT_FALSE(OpenModel("synthetic:").ok());
}

TEST(Synthetic, ChoosesTypesAsRealFilesDo) {
    const auto type = [](const ModelSource& model, const char* tensor) {
        return Info(model.FindTensor(tensor)->dtype).name;
    };
    const auto small = SyntheticOpen("synthetic:smollm2-135m:q4_k");
    EXPECT_EQ(type(*small, "token_embd.weight"), "Q8_0");      // Q6_K does not fit 576
    EXPECT_EQ(type(*small, "blk.0.attn_q.weight"), "Q8_0");    // Q4_K neither
    EXPECT_EQ(type(*small, "blk.0.ffn_down.weight"), "Q4_K");  // 1536 = 6 * 256
    EXPECT_EQ(type(*small, "blk.0.attn_norm.weight"), "F32");
    const auto large = SyntheticOpen("synthetic:llama-3.1-8b");
    EXPECT_EQ(type(*large, "token_embd.weight"), "Q4_0");
    EXPECT_EQ(type(*large, "output.weight"), "Q6_K");
    EXPECT_EQ(type(*SyntheticOpen("synthetic:qwen3-0.6b:bf16"), "token_embd.weight"), "BF16");
}

// Mean 0 and variance 1/cols. Over n values the mean deviates by 1/sqrt(n) standard deviations and
// the variance by about sqrt(2/n), and by more for block types, whose values share random scales: n
// = 98,304, in at least 384 blocks; five times that is allowed.
TEST(Synthetic, WeightsHaveTheRightVariance) {
    for (const DTypeInfo& info : kFileDTypes) {
        if (info.dtype == DType::kI32) continue;
        const auto model = SyntheticOpen(fmt::format("synthetic:smollm2-135m:{}", info.name));
        const TensorInfo& tensor = *model->FindTensor("blk.3.ffn_down.weight");
        ASSERT_EQ(tensor.dtype, info.dtype);
        std::vector<std::byte> raw(static_cast<size_t>(RowBytes(info.dtype, 1536) * 64));
        ASSERT_TRUE(model->ReadRows(tensor, 7, 64, 0, 1536, raw, nullptr).ok());
        std::vector<float> row(1536);
        double sum = 0, squares = 0;
        for (size_t r = 0; r < 64; ++r) {
            const size_t width = raw.size() / 64;
            DequantizeRow(info.dtype, std::span(raw).subspan(r * width, width), row);
            for (float value : row) {
                sum += value;
                squares += static_cast<double>(value) * value;
            }
        }
        const double n = 64 * 1536;
        const double deviation = 1 / std::sqrt(1536.0);
        EXPECT_TRUE(std::abs(sum / n) <= deviation * 5 / std::sqrt(n) * 2) << info.name;
        EXPECT_TRUE(std::abs(squares / n * 1536 - 1) <= 5 * std::sqrt(2 / n) * 4)
            << info.name << " " << squares / n * 1536;
    }
}

TEST(Synthetic, AnySliceIsTheSameModel) {
    std::mt19937 random(3);
    for (const DTypeInfo& info : kFileDTypes) {
        if (info.dtype == DType::kI32) continue;
        const auto model = SyntheticOpen(fmt::format("synthetic:smollm2-135m:{}", info.name));
        const TensorInfo& tensor = *model->FindTensor("blk.1.ffn_down.weight");
        const int64_t block = info.block_elements;
        const auto stride = static_cast<size_t>(RowBytes(info.dtype, tensor.cols));
        std::vector<std::byte> whole(tensor.bytes);
        ASSERT_TRUE(model->ReadRows(tensor, 0, tensor.rows, 0, tensor.cols, whole, nullptr).ok());
        for (int round = 0; round < 20; ++round) {
            const int64_t row = random() % tensor.rows;
            const int64_t col = block * (random() % (tensor.cols / block));
            const int64_t cols = block * (1 + random() % ((tensor.cols - col) / block));
            std::vector<std::byte> part(static_cast<size_t>(RowBytes(info.dtype, cols)));
            uint64_t bytes_read = 0;
            ASSERT_TRUE(model->ReadRows(tensor, row, 1, col, cols, part, &bytes_read).ok());
            EXPECT_EQ(bytes_read, part.size());
            const size_t at =
                static_cast<size_t>(row) * stride + static_cast<size_t>(RowBytes(info.dtype, col));
            ASSERT_EQ(std::memcmp(part.data(), whole.data() + at, part.size()), 0) << info.name;
        }
    }
}

TEST(Synthetic, TensorsAndSeedsDiffer) {
    const auto first_bytes = [](const ModelSource& model, const char* tensor) {
        std::vector<std::byte> row(model.FindTensor(tensor)->bytes / 192);
        WEFT_CHECK(model.ReadRows(*model.FindTensor(tensor), 0, 1, 0, 576, row, nullptr).ok());
        return row;
    };
    const auto one = Synthetic::Make("synthetic:smollm2-135m:q8_0", 1);
    const auto two = Synthetic::Make("synthetic:smollm2-135m:q8_0", 2);
    EXPECT_NE(first_bytes(*one, "blk.0.attn_k.weight"), first_bytes(*one, "blk.0.attn_v.weight"));
    EXPECT_NE(first_bytes(*one, "blk.0.attn_k.weight"), first_bytes(*one, "blk.1.attn_k.weight"));
    EXPECT_NE(first_bytes(*one, "blk.0.attn_k.weight"), first_bytes(*two, "blk.0.attn_k.weight"));
    EXPECT_NE(*one->Fingerprint(), *two->Fingerprint());
    EXPECT_EQ(*one->Fingerprint(), *Synthetic::Make("synthetic:smollm2-135m:q8_0")->Fingerprint());
}

// Values from the reference formula of Llama 3.1 (transformers, rope type "llama3").
TEST(Synthetic, NormsAndRopeFactors) {
    const auto model = SyntheticOpen("synthetic:llama-3.2-1b");
    const auto norm = model->ReadFloats(*model->FindTensor("blk.5.ffn_norm.weight"));
    EXPECT_EQ(*norm, std::vector<float>(2048, 1.0f));
    const auto factors = model->ReadFloats(*model->FindTensor("rope_freqs.weight"));
    ASSERT_EQ(factors->size(), 32u);
    EXPECT_EQ((*factors)[0], 1.0f);
    EXPECT_EQ((*factors)[14], 1.0f);
    EXPECT_NEAR((*factors)[15], 1.6513292f, 1e-5f);
    EXPECT_NEAR((*factors)[16], 3.2922621f, 1e-5f);
    EXPECT_NEAR((*factors)[17], 9.6667290f, 1e-5f);
    EXPECT_EQ((*factors)[18], 32.0f);
    EXPECT_EQ((*factors)[31], 32.0f);
    EXPECT_EQ(SyntheticOpen("synthetic:qwen3-0.6b")->FindTensor("rope_freqs.weight"), nullptr);
}

TEST(Synthetic, ExportReadsBackTheSame) {
    weft::test::TempDir dir;
    const auto model = SyntheticOpen("synthetic:smollm2-135m:q4_1");
    ASSERT_TRUE(WriteGguf(*model, dir / "out.gguf").ok());
    const Result<Gguf> file = Gguf::Open(dir / "out.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->tensors().size(), model->tensors().size());
    ASSERT_EQ(file->meta().entries().size(), model->meta().entries().size());
    for (const MetaEntry& entry : model->meta().entries()) {
        const MetaEntry* copy = file->meta().Find(entry.key);
        ASSERT_NE(copy, nullptr) << entry.key;
        EXPECT_TRUE(std::ranges::equal(copy->bytes, entry.bytes)) << entry.key;
    }
    for (size_t i = 0; i < model->tensors().size(); i += 13) {
        const TensorInfo& made = model->tensors()[i];
        const TensorInfo& read = file->tensors()[i];
        ASSERT_EQ(made.name, read.name);
        ASSERT_EQ(made.dtype, read.dtype);
        std::vector<std::byte> a(made.bytes), b(made.bytes);
        ASSERT_TRUE(model->ReadRows(made, 0, made.rows, 0, made.cols, a, nullptr).ok());
        ASSERT_TRUE(file->ReadRows(read, 0, made.rows, 0, made.cols, b, nullptr).ok());
        ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0) << made.name;
    }
}

}  // namespace
}  // namespace weft::model_files
