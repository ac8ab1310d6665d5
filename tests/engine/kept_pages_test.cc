// Prompts that continue from kept pages have the same bits as without: after a restart from a
// folder, and from host memory when the KV cache is too small. Models: dense, quantized KV, sliding
// windows, recurrent, Mamba-2, and pooled windows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include "engine/engine.h"
#include "support/flip_bit.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/lavapipe.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPage = 64;

// The file with the weights of a model.
std::string WeightsOf(const std::string& model) {
    return fs::is_directory(model) ? model + "/model.safetensors" : model;
}

// Tokens and log-probabilities of an answer.
using Answer = std::vector<std::pair<int32_t, float>>;

class KeptEar final : public Listener {
  public:
    void OnToken(const GeneratedToken& token, std::string_view) override {
        answer.emplace_back(token.chance.id, token.chance.logprob);
    }
    void OnEnd(std::string_view, const Result<Ending>& end) override {
        ASSERT_TRUE(end.ok()) << end.error().message;
        ending = *end;
    }
    Answer answer;
    Ending ending;
};

Request KeptRequest(int text, int64_t tokens, std::string tenant = "") {
    Request request;
    for (int i = 0; i < tokens; ++i) request.prompt.push_back(5 + (i * i + text * i + text) % 11);
    request.max_tokens = 12;
    request.ignore_eos = true;
    request.logprobs = 0;
    request.sampler.temperature = 0;
    request.tenant = std::move(tenant);
    return request;
}

class KeptPagesOf : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        const std::string name = GetParam();
        if (name == "nemotronHMoe" || name == "deepseekV4") {
            const support::HfGolden golden(support::TestData("/families/" + name + ".safetensors"));
            golden.Write(name, dir_ / "model");
            support::WriteText(dir_ / "model/tokenizer.json", support::SmallTokenizer());
        } else {
            support::WriteTinyGguf(dir_ / "model", FileOf(name));
        }
    }
    static support::TinyFile FileOf(const std::string& name) {
        support::TinyFile file{.hyper = support::OddHyper(name == "q8_0" ? "llama" : name)};
        file.hyper.layers = name == "gemma3" ? 6 : 2;
        if (name == "gemma3") {
            file.hyper.tied = true;
            file.numbers = {{"attention.sliding_window", 6}};
        }
        if (name == "qwen3next") {
            file.hyper.hidden = 144;
            file.hyper.ffn = 96;
            support::AddState(file.hyper, false);
        }
        return file;
    }
    Job JobFor(int64_t kv_tokens) const {
        Job job;
        job.model = dir_ / "model";
        job.threads = 1;
        job.ctx = 512;
        job.kv_tokens = kv_tokens;
        job.chunk = 96;
        job.self_test = false;
        if (std::string(GetParam()) == "q8_0") job.kv_dtype = DType::kQ8_0;
        return job;
    }
    static std::unique_ptr<Engine> Open(const Job& job) {
        auto engine = Engine::Start({}, job, {.max_seqs = 2, .prefix_cache = true});
        EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
        return *std::move(engine);
    }
    test::TempDir dir_;
};

// Answers of `requests`, all submitted at once.
std::vector<std::shared_ptr<KeptEar>> RunAll(Engine& engine, const std::vector<Request>& requests) {
    std::vector<std::shared_ptr<KeptEar>> ears;
    for (const Request& request : requests) {
        ears.push_back(std::make_shared<KeptEar>());
        EXPECT_TRUE(engine.Submit(request, ears.back()).ok());
    }
    engine.Drain();
    const Status ran = engine.Run();
    EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
    return ears;
}

INSTANTIATE_TEST_SUITE_P(All, KeptPagesOf,
                         testing::Values("llama", "q8_0", "gemma3", "qwen3next", "nemotronHMoe",
                                         "deepseekV4"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(KeptPagesOf, GiveTheSameBitsAfterARestart) {
    Job job = JobFor(2048);
    const std::vector<Request> requests{KeptRequest(1, 5 * kPage + 7), KeptRequest(2, 3 * kPage)};
    std::vector<Answer> expected;
    for (const auto& ear : RunAll(*Open(job), requests)) expected.push_back(ear->answer);
    ASSERT_EQ(expected[0].size(), 12u);
    job.cache_dir = dir_ / "pages";
    for (const bool again : {false, true}) {
        const auto engine = Open(job);
        const auto ears = RunAll(*engine, requests);
        for (size_t i = 0; i < requests.size(); ++i) {
            EXPECT_EQ(ears[i]->answer, expected[i]) << "request " << i << ", again " << again;
            const int64_t whole = (std::ssize(requests[i].prompt) - 1) / kPage * kPage;
            EXPECT_EQ(ears[i]->ending.cached_tokens, again ? whole : 0);
        }
        const EngineStats stats = engine->stats();
        EXPECT_EQ(stats.schedule.kept_hit, again ? (5 + 2) * kPage : 0);
        EXPECT_EQ(stats.kept.read_bytes > 0, again);
        EXPECT_EQ(stats.kept.damaged, 0);
    }
}

// Another tenant, model file or type of the KV cache has other pages.
TEST_P(KeptPagesOf, ServeNobodyElse) {
    Job job = JobFor(2048);
    job.cache_dir = dir_ / "pages";
    RunAll(*Open(job), {KeptRequest(1, 5 * kPage)});
    auto engine = Open(job);
    RunAll(*engine, {KeptRequest(1, 5 * kPage, "another"), KeptRequest(3, 5 * kPage)});
    EXPECT_EQ(engine->stats().schedule.kept_hit, 0);
    job.kv_dtype = DType::kF32;
    engine = Open(job);
    RunAll(*engine, {KeptRequest(1, 5 * kPage)});
    EXPECT_EQ(engine->stats().schedule.kept_hit, 0);
    job.kv_dtype = JobFor(2048).kv_dtype;
    support::FlipBit(WeightsOf(dir_ / "model"));
    engine = Open(job);
    RunAll(*engine, {KeptRequest(1, 5 * kPage)});
    EXPECT_EQ(engine->stats().schedule.kept_hit, 0);
}

// A damaged page is computed again, and so are those after it.
TEST_P(KeptPagesOf, DamageCostsOnlyTime) {
    Job job = JobFor(2048);
    job.cache_dir = dir_ / "pages";
    const std::vector<Request> requests{KeptRequest(1, 5 * kPage + 7)};
    const Answer expected = RunAll(*Open(job), requests)[0]->answer;
    for (const auto& entry : fs::directory_iterator(job.cache_dir)) {
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-1, std::ios::end);
        const auto at = file.tellp();
        file.seekg(at);
        const int byte = file.get();
        file.seekp(at);
        file.put(static_cast<char>(byte ^ 1));
    }
    auto engine = Open(job);
    EXPECT_EQ(RunAll(*engine, requests)[0]->answer, expected);
    EXPECT_EQ(engine->stats().schedule.kept_hit, 0);
    EXPECT_GT(engine->stats().kept.damaged, 0);
    engine.reset();
    engine = Open(job);
    EXPECT_EQ(RunAll(*engine, requests)[0]->answer, expected);
    EXPECT_EQ(engine->stats().schedule.kept_hit, 5 * kPage) << "written again";
}

// A slot that was saved gives its pages, and its state, to the next engine; another owner's
// requests find them under their own keys only after they restore the file.
TEST_P(KeptPagesOf, ComeBackFromASlot) {
    Job job = JobFor(2048);
    const Request request = KeptRequest(1, 5 * kPage + 7, "first");
    const Answer expected = RunAll(*Open(job), {request})[0]->answer;
    job.slot_dir = dir_ / "slots";
    std::optional<Result<SlotRequest::Done>> done;
    const auto run = [&](Engine& engine, bool restores, const std::string& tenant) {
        SlotRequest slot{.file = "talk", .restores = restores, .tenant = tenant};
        slot.tokens = request.prompt;
        slot.done = [&](const Result<SlotRequest::Done>& result) { done = result; };
        engine.Submit(std::move(slot));
    };
    auto engine = Open(job);
    ASSERT_TRUE(engine->Generate(request).ok());
    run(*engine, false, "first");
    RunAll(*engine, {});
    ASSERT_TRUE(done->ok()) << done->error().message;
    const int64_t saved = (*done)->pages_tokens;
    EXPECT_EQ(saved, 5 * kPage);
    EXPECT_EQ((*done)->bytes, static_cast<int64_t>(fs::file_size(dir_ / "slots/talk")));

    engine = Open(job);
    run(*engine, true, "second");
    Request other = request;
    other.tenant = "second";
    const auto ears = RunAll(*engine, {request, other});
    ASSERT_TRUE(done->ok()) << done->error().message;
    EXPECT_EQ((*done)->tokens, request.prompt);
    EXPECT_EQ((*done)->pages_tokens, saved);
    EXPECT_EQ(ears[0]->ending.cached_tokens, 0);
    EXPECT_EQ(ears[1]->ending.cached_tokens, saved);
    for (const auto& ear : ears) EXPECT_EQ(ear->answer, expected);
}

// The KV cache holds one text at a time; host memory holds both.
TEST_P(KeptPagesOf, ComeBackFromHostMemory) {
    Job job = JobFor(512);
    std::vector<Request> requests;
    for (const int text : {1, 2, 1, 2, 1}) requests.push_back(KeptRequest(text, 6 * kPage + 5));
    const auto ask_in_turn = [&](Engine& engine) {
        std::vector<std::vector<int32_t>> answers;
        for (const Request& request : requests) {
            auto generated = engine.Generate(request);
            EXPECT_TRUE(generated.ok());
            if (generated.ok()) answers.push_back(generated->tokens);
        }
        return answers;
    };
    const auto expected = ask_in_turn(*Open(job));
    job.cache_ram = 64 << 20;
    const auto engine = Open(job);
    EXPECT_EQ(ask_in_turn(*engine), expected);
    EXPECT_GE(engine->stats().schedule.kept_hit, 3 * 5 * kPage);
}

// Pages of a GPU go through its memory. (Its kernels depend on the rows of a step, so both answers
// continue from the same cached pages.)
class KeptPagesOnAGpu : public KeptPagesOf {
  protected:
    static void GivesTheSameBits(Job job) {
        const std::string folder = std::exchange(job.cache_dir, "");
        const Request request = KeptRequest(1, 5 * kPage + 1);
        std::vector<int32_t> expected;
        {
            const auto engine = Open(job);
            ASSERT_TRUE(engine->Generate(request).ok());
            expected = engine->Generate(request)->tokens;
            EXPECT_EQ(engine->stats().schedule.cache_hit, 5 * kPage);
        }
        job.cache_dir = folder;
        RunAll(*Open(job), {request});
        const auto engine = Open(job);
        EXPECT_EQ(engine->Generate(request)->tokens, expected);
        EXPECT_EQ(engine->stats().schedule.kept_hit, 5 * kPage);
    }
};
INSTANTIATE_TEST_SUITE_P(All, KeptPagesOnAGpu, testing::Values("llama", "qwen3next"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(KeptPagesOnAGpu, GiveTheSameBits) {
    const auto index = test::FindLavapipe();
    if (!index.ok()) GTEST_SKIP() << index.error().message;
    for (const int64_t gpu_layers : {-1, 1}) {
        Job job = JobFor(1024);
        job.device = fmt::format("vulkan:{}", *index);
        job.gpu_layers = gpu_layers;  // of 2 layers
        job.cache_dir = dir_ / fmt::format("pages{}", gpu_layers);
        GivesTheSameBits(job);
    }
}

}  // namespace
}  // namespace weft::engine
