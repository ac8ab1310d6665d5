// A model whose logits are not numbers: scores of a prompt, logits and the perplexity fail as
// answers do.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "engine/engine.h"
#include "engine/start/measure.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

class Ear final : public Listener {
  public:
    void OnToken(const GeneratedToken&, std::string_view) override {
        FAIL() << "a token was drawn";
    }
    void OnPrompt(const GeneratedToken&) override { ++scores; }
    void OnEnd(std::string_view, const Result<Ending>& ended) override {
        if (!ended.ok()) error = ended.error();
    }
    int scores = 0;
    std::optional<Error> error;
};

// A file whose last norm begins with `number`.
void WriteDamaged(const std::string& path, float number) {
    support::WriteTinyGguf(path, {.hyper = support::OddHyper()});
    const auto source = model_files::OpenModel(path);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const model_files::TensorInfo* norm = (*source)->FindTensor("output_norm.weight");
    ASSERT_NE(norm, nullptr);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(norm->offset));
    file.write(reinterpret_cast<const char*>(&number), sizeof number);
}

TEST(DamagedScores, EndMeasurements) {
    const test::TempDir dir;
    const std::string path = dir / "tiny.gguf";
    const std::vector<int32_t> tokens = {97, 98, 99};
    const std::function<Status(StepRunner&)> measures[] = {
        [&](StepRunner& runner) -> Status {
            WEFT_TRY(Logits(runner, tokens, false));
            return {};
        },
        [&](StepRunner& runner) -> Status {
            WEFT_TRY(Logits(runner, tokens, true));
            return {};
        },
        [](StepRunner& runner) -> Status {
            WEFT_TRY(ScoreText(runner, std::string(200, 'a'), 32, [](int64_t, int64_t, double) {}));
            return {};
        }};
    for (const float number : {std::nanf(""), INFINITY, 1.0f}) {
        WriteDamaged(path, number);
        for (const auto& measure : measures) {
            Job job;
            job.model = path;
            job.threads = 1;
            job.ctx = 32;
            job.self_test = false;
            job.max_outputs = 16;
            const auto runner = StepRunner::Start({}, job);
            ASSERT_TRUE(runner.ok()) << runner.error().message;
            const Status end = measure(**runner);
            EXPECT_EQ(end.ok(), number == 1.0f) << number;
            if (end.ok()) continue;
            EXPECT_EQ(end.error().code, ErrorCode::kCorrupt);
            EXPECT_NE(end.error().message.find("logits are not finite"), std::string::npos)
                << end.error().message;
        }
    }
}

TEST(DamagedScores, EndTheRequestWithTheErrorOfItsAnswer) {
    const test::TempDir dir;
    const std::string path = dir / "tiny.gguf";
    WriteDamaged(path, std::nanf(""));
    for (const int64_t max_tokens : {0, 4}) {
        for (const int prompt_logprobs : {-1, 2}) {
            if (max_tokens == 0 && prompt_logprobs < 0) continue;  // reads no logits
            Job job;
            job.model = path;
            job.threads = 1;
            job.ctx = 64;
            job.self_test = false;
            auto engine = Engine::Start({}, job, {});
            ASSERT_TRUE(engine.ok()) << engine.error().message;
            Request request;
            request.prompt = {97, 98, 99, 100, 101};
            request.max_tokens = max_tokens;
            request.prompt_logprobs = prompt_logprobs;
            const auto ear = std::make_shared<Ear>();
            const auto id = (*engine)->Submit(request, ear);
            ASSERT_TRUE(id.ok()) << id.error().message;
            (*engine)->Drain();
            const Status ran = (*engine)->Run();
            EXPECT_TRUE(ran.ok()) << ran.error().message;
            ASSERT_TRUE(ear->error.has_value()) << max_tokens << ", " << prompt_logprobs;
            EXPECT_EQ(ear->error->code, ErrorCode::kCorrupt);
            EXPECT_NE(ear->error->message.find("logits are not finite"), std::string::npos)
                << ear->error->message;
            EXPECT_EQ(ear->scores, 0);
        }
    }
}

}  // namespace
}  // namespace weft::engine
