// Embeddings against transformers through the whole engine: the vector times the output matrix has
// the direction of transformers' logits (of the last token, the first, or the mean of all). The
// bits do not depend on other requests, chunks, or the number of pages.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "support/golden_models.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

class EmbeddingEar final : public Listener {
  public:
    void OnToken(const SaidToken&, std::string_view) override { ADD_FAILURE() << "it speaks"; }
    void OnEmbedding(std::vector<float> vector) override { vector_ = std::move(vector); }
    void OnEnd(std::string_view rest, const Result<Ending>& ending) override {
        EXPECT_EQ(rest, "");
        EXPECT_TRUE(ending.ok()) << (ending.ok() ? "" : ending.error().message);
        if (ending.ok()) ending_ = *ending;
    }
    const std::vector<float>& vector() const { return vector_; }
    const Ending& ending() const { return ending_; }

  private:
    std::vector<float> vector_;
    Ending ending_;
};

Job EmbeddingJobOf(const std::string& model, int64_t chunk, model::Outputs outputs) {
    Job job;
    job.model = model;
    job.threads = 1;
    job.ctx = 64;
    job.kv_tokens = 256;
    job.chunk = chunk;
    job.kv_dtype = DType::kF32;
    job.outputs = outputs;
    job.self_test = false;
    return job;
}

Request EmbeddingRequestOf(std::vector<int32_t> tokens, Pooling pooling) {
    Request request;
    request.prompt = std::move(tokens);
    request.pooling = pooling;
    return request;
}

class Embedding : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        for (const support::GoldenCase& each : support::GoldenCases()) {
            if (each.name == std::string(GetParam())) case_ = each;
        }
        support::WriteGolden(case_, dir_ / "m");
        for (const int token : support::GoldenTokens(case_)) tokens_.push_back(token);
        logits_ = support::Golden(case_.name + std::string("/logits"));
        ASSERT_FALSE(tokens_.empty());
        vocab_ = logits_.size() / tokens_.size();
    }

    // Direction of transformers' logits.
    std::vector<double> Expected(Pooling pooling) const {
        std::vector<double> sum(vocab_);
        const size_t first = pooling == Pooling::kLast ? tokens_.size() - 1 : 0;
        const size_t end = pooling == Pooling::kCls ? 1 : tokens_.size();
        for (size_t row = first; row < end; ++row) {
            for (size_t i = 0; i < vocab_; ++i) sum[i] += double{logits_[row * vocab_ + i]};
        }
        return sum;
    }

    // Sine of the angle between the vector's logits and transformers'.
    double Error(const std::vector<float>& vector, Pooling pooling) const {
        const auto source = model_files::OpenModel(dir_ / "m").value();
        const char* name = case_.tied ? "token_embd.weight" : "output.weight";
        const std::vector<float> matrix = source->ReadFloats(*source->FindTensor(name)).value();
        const std::vector<double> expected = Expected(pooling);
        double dot = 0, a = 0, b = 0;
        for (size_t i = 0; i < vocab_; ++i) {
            double logit = 0;
            for (size_t k = 0; k < vector.size(); ++k) {
                logit += double{vector[k]} * double{matrix[i * vector.size() + k]};
            }
            dot += logit * expected[i];
            a += logit * logit;
            b += expected[i] * expected[i];
        }
        const double cosine = dot / std::sqrt(a * b);
        return std::sqrt(std::max(0.0, 1 - cosine * cosine)) + (cosine > 0 ? 0 : 1);
    }

    test::TempDir dir_;
    support::GoldenCase case_;
    std::vector<int32_t> tokens_;
    std::vector<float> logits_;
    size_t vocab_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Models, Embedding, testing::Values("llama", "qwen3Tied", "gemma3"));

// Tolerance: that of the backend's golden test for float32 rows, 2.2e-5 of their length.
TEST_P(Embedding, EqualsTransformersInAnyCompany) {
    for (const Pooling pooling : {Pooling::kLast, Pooling::kMean, Pooling::kCls}) {
        std::vector<float> first;
        for (const auto outputs : {model::Outputs::kBoth, model::Outputs::kHidden}) {
            for (const int64_t chunk : {64, 7}) {
                auto engine =
                    Engine::Start({}, EmbeddingJobOf(dir_ / "m", chunk, outputs), {5, true});
                ASSERT_TRUE(engine.ok()) << engine.error().message;
                std::vector<std::shared_ptr<EmbeddingEar>> ears;
                for (int i = 0; i < 9; ++i) {
                    std::vector<int32_t> tokens = tokens_;
                    if (i % 2 == 1) tokens.resize(tokens.size() - static_cast<size_t>(i));
                    ears.push_back(std::make_shared<EmbeddingEar>());
                    ASSERT_TRUE(
                        (*engine)->Submit(EmbeddingRequestOf(tokens, pooling), ears.back()).ok());
                }
                (*engine)->Drain();
                ASSERT_TRUE((*engine)->Run().ok());
                const std::vector<float>& vector = ears[0]->vector();
                if (first.empty()) first = vector;
                EXPECT_LE(Error(vector, pooling), 2.2e-5) << PoolingName(pooling);
                for (size_t i = 0; i < ears.size(); i += 2) EXPECT_EQ(ears[i]->vector(), first);
                double squares = 0;
                for (const float x : vector) squares += double{x} * double{x};
                EXPECT_NEAR(squares, 1, 1e-6);
                EXPECT_EQ(ears[0]->ending().finish, "embedding");
                EXPECT_EQ(ears[0]->ending().prompt_tokens, static_cast<int64_t>(tokens_.size()));
            }
        }
    }
}

TEST_P(Embedding, WhatItCannotMakeIsRefused) {
    auto engine =
        Engine::Start({}, EmbeddingJobOf(dir_ / "m", 128, model::Outputs::kBoth), {4, true});
    ASSERT_TRUE(engine.ok());
    EXPECT_TRUE((*engine)->embeds() && (*engine)->generates());
    Request long_one = EmbeddingRequestOf(tokens_, Pooling::kMean);
    long_one.prompt.resize(64, 1);
    EXPECT_NE((*engine)->Check(long_one).error().message.find("64 tokens; at most 63"),
              std::string::npos);
    (*engine)->Drain();
    EXPECT_TRUE((*engine)->Run().ok());

    auto texts =
        Engine::Start({}, EmbeddingJobOf(dir_ / "m", 64, model::Outputs::kLogits), {4, true});
    ASSERT_TRUE(texts.ok());
    EXPECT_FALSE((*texts)->embeds());
    const Status refused = (*texts)->Check(EmbeddingRequestOf(tokens_, Pooling::kLast));
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find("--embeddings"), std::string::npos);
    auto vectors =
        Engine::Start({}, EmbeddingJobOf(dir_ / "m", 64, model::Outputs::kHidden), {4, true});
    ASSERT_TRUE(vectors.ok());
    Request text = EmbeddingRequestOf(tokens_, Pooling::kLast);
    text.pooling.reset();
    EXPECT_EQ((*vectors)->Check(text).error().code, ErrorCode::kUnsupported);
}

TEST(Pooler, AVectorWithoutADirectionIsNone) {
    Pooler pooler(Pooling::kMean, 2, 3);
    EXPECT_FALSE(pooler.Finish().ok());
    pooler.Add(std::vector<float>{1, 2, 3, -1, -2, -3}, 0);
    EXPECT_FALSE(pooler.Finish().ok());
    pooler.Add(std::vector<float>{0, NAN, 0}, 0);
    EXPECT_FALSE(pooler.Finish().ok());
    pooler.Add(std::vector<float>{0, 2, 0}, 0);  // starts again
    EXPECT_EQ(pooler.Finish().value(), (std::vector<float>{0, 1, 0}));
}

}  // namespace
}  // namespace weft::engine
