// Rerankers against CrossEncoder of sentence-transformers (tools/make_rerank_golden.py) and
// transformers (make_encoder_golden.py): the tokens of a pair, and the score through the whole
// engine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "chat/pairs.h"
#include "engine/engine.h"
#include "model_files/embedding_head.h"
#include "model_files/read_tokenizer.h"
#include "model_files/score_head.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::serve {
namespace {

class ScoreEar final : public engine::Listener {
  public:
    void OnToken(const engine::GeneratedToken&, std::string_view) override { ADD_FAILURE(); }
    void OnEmbedding(std::vector<float> vector) override { vector_ = std::move(vector); }
    void OnEnd(std::string_view, const Result<engine::Ending>& ending) override {
        EXPECT_TRUE(ending.ok()) << (ending.ok() ? "" : ending.error().message);
    }
    std::vector<float> vector_;
};

support::HfGolden Golden(const std::string& file) {
    return support::HfGolden(support::TestData("/" + file + ".safetensors"));
}
constexpr const char *kDecoders = "rerank_golden", *kEncoders = "rerank_encoders";
// File and case.
std::vector<std::pair<std::string, std::string>> Cases() {
    std::vector<std::pair<std::string, std::string>> all;
    for (const char* file : {kDecoders, kEncoders}) {
        for (const std::string& name : Golden(file).Cases("/files")) all.emplace_back(file, name);
    }
    return all;
}

class Rerankers : public testing::TestWithParam<std::pair<std::string, std::string>> {
  protected:
    Rerankers() : golden_(Golden(GetParam().first)) {
        golden_.Write(name_, dir_.path());
        const auto files = nlohmann::json::parse(golden_.Text(name_ + "/files"));
        for (const auto& [path, text] : files.items()) Put(path, text);
    }
    void Put(const std::string& path, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(dir_ / path).parent_path());
        support::WriteText(dir_ / path, text);
    }

    const std::string name_ = GetParam().second;
    test::TempDir dir_;
    support::HfGolden golden_;
};

INSTANTIATE_TEST_SUITE_P(Cases, Rerankers, testing::ValuesIn(Cases()),
                         [](const auto& each) { return each.param.second; });

// The tolerance equals that of the backend's golden test for float32 rows: 2.2e-5 of the length of
// a state. A head's matrix has rows of length sqrt(3), and states have a length of about 7.
TEST_P(Rerankers, GiveTheScoresOfCrossEncoders) {
    const auto source = model_files::OpenModel(dir_.path()).value();
    const auto head = model_files::ReadEmbeddingHead(*source);
    ASSERT_TRUE(head.ok()) << head.error().message;
    ASSERT_TRUE(head->scores);
    const auto tokenizer = model_files::LoadTokenizer(*source);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    const auto form = chat::PairForm::Load(source->meta(), **tokenizer, head->score_tokens.yes >= 0,
                                           model_files::ReadsMessages(*source).value());
    ASSERT_TRUE(form.ok()) << form.error().message;
    const auto pairs = nlohmann::json::parse(golden_.Text("pairs"));
    const std::vector<float> logits = golden_.Floats(name_ + "/logits");
    const std::vector<float> scores = golden_.Floats(name_ + "/scores");
    engine::Job job;
    job.model = dir_.path();
    job.threads = 1;
    job.ctx = 128;
    job.kv_tokens = 512;
    job.chunk = 128;
    job.kv_dtype = DType::kF32;
    job.outputs = model::Outputs::kHidden;
    job.self_test = false;
    auto engine = engine::Engine::Start({}, job, {5, true});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    std::vector<std::shared_ptr<ScoreEar>> ears;
    for (const auto& pair : pairs) {
        const auto ids = form->Encode(pair[0].get<std::string>(), pair[1].get<std::string>(),
                                      head->prompt, head->most_tokens);
        ASSERT_TRUE(ids.ok()) << ids.error().message;
        engine::Request request;
        request.prompt = ids->ids;
        request.second = static_cast<int64_t>(ids->second);
        request.pooling = head->poolings;
        ears.push_back(std::make_shared<ScoreEar>());
        ASSERT_TRUE((*engine)->Submit(std::move(request), ears.back()).ok());
    }
    (*engine)->Drain();
    ASSERT_TRUE((*engine)->Run().ok());
    for (size_t i = 0; i < ears.size(); ++i) {
        const auto vector = head->Apply(ears[i]->vector_);
        ASSERT_TRUE(vector.ok()) << vector.error().message;
        ASSERT_EQ(vector->size(), 1);
        EXPECT_LE(std::fabs((*vector)[0] - logits[i]), 3e-4) << i;
        EXPECT_LE(std::fabs(head->Activated((*vector)[0]) - scores[i]), 3e-4) << i;
    }
}

}  // namespace
}  // namespace weft::serve
