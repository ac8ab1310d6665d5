// Embeddings against transformers through the whole engine: the vector times the output matrix has
// the direction of transformers' logits (of the last token, the first, or the mean of all). The
// bits do not depend on other requests, chunks, or the number of pages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "engine/engine.h"
#include "support/golden_models.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

class EmbeddingEar final : public Listener {
  public:
    void OnToken(const GeneratedToken&, std::string_view) override { ADD_FAILURE() << "it speaks"; }
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
    request.pooling = {pooling};
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

// The tolerance equals that of the backend's golden test for float32 rows: 2.2e-5 of their length.
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
                EXPECT_LE(Error(vector, pooling), 2.2e-5) << model_files::PoolingName(pooling);
                for (size_t i = 0; i < ears.size(); i += 2) EXPECT_EQ(ears[i]->vector(), first);
                EXPECT_EQ(ears[0]->ending().finish, "embedding");
                EXPECT_EQ(ears[0]->ending().prompt_tokens, static_cast<int64_t>(tokens_.size()));
            }
        }
    }
}

// A text as long as the context has the vector that it has in a larger context.
TEST_P(Embedding, ATextMayFillTheContext) {
    std::vector<int32_t> tokens = tokens_;
    tokens.resize(64, 1);
    std::vector<float> vectors[2];
    for (const int64_t context : {64, 128}) {
        Job job = EmbeddingJobOf(dir_ / "m", 64, model::Outputs::kHidden);
        job.ctx = job.kv_tokens = context;
        auto engine = Engine::Start({}, job, {2, true});
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        const auto ear = std::make_shared<EmbeddingEar>();
        ASSERT_TRUE((*engine)->Submit(EmbeddingRequestOf(tokens, Pooling::kLast), ear).ok());
        (*engine)->Drain();
        ASSERT_TRUE((*engine)->Run().ok());
        vectors[context / 128] = ear->vector();
    }
    ASSERT_FALSE(vectors[0].empty());
    EXPECT_EQ(vectors[0], vectors[1]);
}

TEST_P(Embedding, UnsupportedRequestsAreRejected) {
    auto engine =
        Engine::Start({}, EmbeddingJobOf(dir_ / "m", 128, model::Outputs::kBoth), {4, true});
    ASSERT_TRUE(engine.ok());
    EXPECT_TRUE((*engine)->embeds() && (*engine)->generates());
    Request long_one = EmbeddingRequestOf(tokens_, Pooling::kMean);
    long_one.prompt.resize(65, 1);
    EXPECT_NE((*engine)->Check(long_one).error().message.find("65 tokens; at most 64"),
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
    text.pooling.clear();
    EXPECT_EQ((*vectors)->Check(text).error().code, ErrorCode::kUnsupported);
}

// Folders of sentence-transformers: the vectors of tools/make_pooling_golden.py.
class SentenceFolders : public testing::TestWithParam<std::string> {
  protected:
    SentenceFolders() : golden_(support::TestData("/pooling_golden.safetensors")) {
        support::HfGolden().Write("llama", dir_.path());
        Put("tokenizer.json", support::SmallTokenizer());
        const auto files = nlohmann::json::parse(golden_.Text(GetParam() + "/files"));
        for (const auto& [path, text] : files.items()) Put(path, text);
        std::map<std::string, std::map<std::string, support::SafeBytes>> of_folder;
        const auto table = nlohmann::json::parse(golden_.Text(GetParam() + "/tensors"));
        for (const auto& [name, shape] : table.items()) {
            const size_t slash = name.find('/');
            of_folder[name.substr(0, slash)][name.substr(slash + 1)] =
                support::HfGolden::Make(name, "F32", shape.get<std::vector<int64_t>>(), 0);
        }
        for (const auto& [folder, tensors] : of_folder) {
            support::WriteTensors(dir_ / folder, tensors);
        }
    }
    void Put(const std::string& path, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(dir_ / path).parent_path());
        support::WriteText(dir_ / path, text);
    }
    Result<model_files::EmbeddingHead> Head() {
        return model_files::ReadEmbeddingHead(*model_files::OpenModel(dir_.path()).value());
    }

    test::TempDir dir_;
    support::HfGolden golden_;
};

std::vector<std::string> SentenceCases() {
    return support::HfGolden(support::TestData("/pooling_golden.safetensors")).Cases("/files");
}

INSTANTIATE_TEST_SUITE_P(Cases, SentenceFolders, testing::ValuesIn(SentenceCases()),
                         [](const auto& each) { return each.param; });

// Tolerance: both sides compute in float32; as above, relative to the vector's length. A Dense
// module multiplies the error by at most its matrix's norm (here below 3) each.
TEST_P(SentenceFolders, GiveTheVectorsOfSentenceTransformers) {
    const auto head = Head();
    ASSERT_TRUE(head.ok()) << head.error().message;
    EXPECT_TRUE(head->from_file);
    std::vector<int32_t> tokens;
    std::istringstream words(head->prompt);
    for (std::string word; words >> word;) tokens.push_back(std::stoi(word.substr(1)));
    const int64_t unpooled = head->pools_prompt ? 0 : std::ssize(tokens);
    for (const float id : golden_.Floats("tokens")) tokens.push_back(static_cast<int32_t>(id));
    const std::vector<float> expected = golden_.Floats(GetParam() + "/vector");
    for (const int64_t chunk : {64, 7}) {
        auto engine = Engine::Start({}, EmbeddingJobOf(dir_.path(), chunk, model::Outputs::kHidden),
                                    {5, true});
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        EXPECT_EQ(head->Columns((*engine)->hyper().hidden), std::ssize(expected));
        Request request;
        request.prompt = tokens;
        request.pooling = head->poolings;
        request.pool_from = unpooled;
        const auto ear = std::make_shared<EmbeddingEar>();
        ASSERT_TRUE((*engine)->Submit(std::move(request), ear).ok());
        (*engine)->Drain();
        ASSERT_TRUE((*engine)->Run().ok());
        const auto vector = head->Apply(ear->vector());
        ASSERT_TRUE(vector.ok()) << vector.error().message;
        ASSERT_EQ(vector->size(), expected.size());
        double error = 0, length = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
            error += std::pow(double{(*vector)[i]} - double{expected[i]}, 2);
            length += double{expected[i]} * double{expected[i]};
        }
        EXPECT_LE(std::sqrt(error), 6 * 2.2e-5 * std::sqrt(length));
    }
}

class OddSentenceFolder : public SentenceFolders {};
INSTANTIATE_TEST_SUITE_P(Cases, OddSentenceFolder, testing::Values("dense"));

TEST_P(OddSentenceFolder, CutsTextsAsSentenceTransformersDoes) {
    const auto source = model_files::OpenModel(dir_.path()).value();
    const int64_t positions = source->meta().Int("llama.context_length", 1, 1 << 20).value();
    const auto most = [&](const std::string& module, const std::string& tokenizer) {
        Put("sentence_bert_config.json", module);
        Put("tokenizer_config.json", tokenizer);
        const auto head = Head();
        EXPECT_TRUE(head.ok()) << head.error().message;
        return head.ok() ? head->most_tokens : -1;
    };
    EXPECT_EQ(Head()->most_tokens, positions);
    EXPECT_EQ(most(R"({"max_seq_length": 7})", R"({"model_max_length": 5})"), 7);
    EXPECT_EQ(most(R"({"max_seq_length": null})", R"({"model_max_length": 5})"), 5);
    EXPECT_EQ(most("{}", R"({"model_max_length": 1000000000000000019884624838656})"), positions);
    EXPECT_EQ(most(fmt::format(R"({{"max_seq_length": {}}})", positions + 1), "{}"), positions + 1);
    EXPECT_EQ(most(R"({"max_seq_length": 7, "tokenizer_args": {"model_max_length": 6}})", "{}"), 6);
    EXPECT_FALSE(Head()->cuts_begin);
    most("{}", R"({"truncation_side": "left"})");
    EXPECT_TRUE(Head()->cuts_begin);
    std::filesystem::remove(dir_ / "sentence_bert_config.json");
    Put("sentence_roberta_config.json", R"({"max_seq_length": 9})");
    EXPECT_EQ(Head()->most_tokens, 9);
    Put("sentence_roberta_config.json", R"({"max_seq_length": 0})");
    EXPECT_NE(Head().error().message.find("max_seq_length"), std::string::npos);
}

TEST_P(OddSentenceFolder, IsRefusedByName) {
    const auto refused = [&](const std::string& path, const std::string& text,
                             const std::string& part) {
        const std::string before = ReadTextFile(dir_ / path).ok() ? *ReadTextFile(dir_ / path) : "";
        Put(path, text);
        const auto head = Head();
        ASSERT_FALSE(head.ok()) << part;
        EXPECT_NE(head.error().message.find(part), std::string::npos) << head.error().message;
        before.empty() ? static_cast<void>(std::filesystem::remove(dir_ / path))
                       : Put(path, before);
    };
    ASSERT_TRUE(Head().ok());
    refused("1_Pooling/config.json", R"({"pooling_mode": "median"})", "'median'");
    refused("1_Pooling/config.json", R"({"pooling_mode_median": true})", "pooling_mode_median");
    refused("1_Pooling/config.json", R"({"word_embedding_dimension": 64})",
            "word_embedding_dimension");
    refused("2_Dense/config.json", R"({"in_features": 48, "out_features": 20,
             "activation_function": "torch.nn.modules.activation.Mish"})",
            "Mish");
    refused("2_Dense/config.json", R"({"in_features": 20, "out_features": 20})", "in_features");
    refused("2_Dense/config.json", R"({"in_features": 48, "out_features": 21})", "linear.weight");
    refused("2_Dense/config.json",
            R"({"in_features": 48, "out_features": 20, "use_residual": true})", "use_residual");
    refused("2_Dense/config.json",
            R"({"in_features": 48, "out_features": 20, "module_input_name": "token_embeddings"})",
            "token_embeddings");
    refused("modules.json",
            R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                {"path": "1_Pooling", "type": "sentence_transformers.models.WordWeights"}])",
            "WordWeights");
    refused("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"}])",
            "without a Pooling");
    refused("modules.json",
            R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
                {"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])",
            "order");
    refused("modules.json", R"([{"path": "../x", "type": "sentence_transformers.models.Pooling"}])",
            "path");
    refused("sentence_bert_config.json", R"({"do_lower_case": true})", "do_lower_case");
    refused("config_sentence_transformers.json", R"({"default_prompt_name": "query"})",
            "default_prompt_name");
    std::filesystem::remove(dir_ / "1_Pooling/config.json");
    EXPECT_EQ(Head().error().code, ErrorCode::kNotFound);
}

TEST(Pooler, AVectorWithoutADirectionIsNone) {
    Pooler pooler({Pooling::kMean}, 2, 3);
    EXPECT_FALSE(pooler.Finish().ok());
    pooler.Add(std::vector<float>{1, 2, 3, -1, -2, -3}, 0);
    EXPECT_FALSE(pooler.Finish().ok());
    pooler.Add(std::vector<float>{0, NAN, 0}, 0);
    EXPECT_FALSE(pooler.Finish().ok());
    pooler.Add(std::vector<float>{0, 2, 0}, 0);                         // starts again
    EXPECT_EQ(pooler.Finish().value(), (std::vector<float>{0, 1, 0}));  // half of the sum
}

}  // namespace
}  // namespace weft::engine
