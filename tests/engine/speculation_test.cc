// Answers with drafts on whole models: equal to those without where that is promised, else of the
// same distribution. Rejected tokens leave no trace in any kind of KV cache.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "engine/engine.h"
#include "engine/start/measure.h"
#include "support/chi_square.h"
#include "support/draft_head_file.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

using support::OddHyper;
using support::TinyFile;

TinyFile SmallFile(int64_t layers) {
    TinyFile file;
    model::Hyper& h = file.hyper;
    h = OddHyper();
    h.layers = layers;
    h.hidden = 64;
    h.ffn = 96;
    h.heads = 2;
    h.kv_heads = 1;
    return file;
}

TinyFile ExpertFile(const std::string& architecture) {
    TinyFile file;
    model::Hyper& h = file.hyper;
    h = OddHyper(architecture);
    h.hidden = 144;
    h.ffn = 96;
    h.moe.experts = 10;
    h.moe.used = 3;
    h.moe.ffn = 96;
    return file;
}

TinyFile SpeculationFileOf(const std::string& name) {
    if (name == "gemma3") {
        TinyFile file{.hyper = OddHyper(name)};
        file.hyper.layers = 6;
        file.hyper.tied = true;
        file.numbers = {{"attention.sliding_window", 6}};
        return file;
    }
    if (name == "qwen35") {
        TinyFile file = ExpertFile(name);
        file.hyper.moe = {};
        support::AddState(file.hyper, true);
        return file;
    }
    if (name == "gpt-oss") {
        TinyFile file = ExpertFile(name);
        file.strings["rope.scaling.type"] = "yarn";
        file.numbers = {{"rope.scaling.factor", 32},
                        {"rope.scaling.original_context_length", 64},
                        {"attention.sliding_window", 6}};
        return file;
    }
    if (name == "deepseek2") {
        TinyFile file = ExpertFile(name);
        model::Hyper& h = file.hyper;
        h.latent = {.rank = 64, .q_rank = 0, .nope = 32, .rope = 16, .value = 24};
        h.head_dim = 48;
        h.rotary_dim = 16;
        h.moe.shared_ffn = 192;
        file.form.dense_layers = 1;
        return file;
    }
    TinyFile file{.hyper = OddHyper()};
    file.hyper.layers = 2;
    file.dtype = name == "llama" ? DType::kF32 : DTypeOfName(name).value();
    return file;
}

class Speculation : public testing::Test {
  protected:
    std::string Write(const std::string& name, const TinyFile& file) {
        support::WriteTinyGguf(dir_ / name, file);
        return dir_ / name;
    }
    static Job JobOf(const std::string& model, KvTypes kv, int64_t ctx) {
        Job job;
        job.model = model;
        job.threads = 1;
        job.ctx = ctx;
        job.chunk = 64;
        job.kv_dtype = kv;
        job.self_test = false;
        return job;
    }
    static std::unique_ptr<Engine> Open(const std::string& model, const DraftOptions& draft = {},
                                        KvTypes kv = {}, int64_t ctx = 320) {
        auto engine = Engine::Start({}, JobOf(model, kv, ctx), OneAtATime(draft));
        EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
        return engine.ok() ? std::move(*engine) : nullptr;
    }
    static Generation Say(Engine& engine, const Request& request) {
        auto g = engine.Generate(request);
        EXPECT_TRUE(g.ok()) << (g.ok() ? "" : g.error().message);
        return g.ok() ? *g : Generation();
    }
    static Request Ask(int64_t most, float temperature = 0, uint64_t seed = 0) {
        Request request;
        request.prompt = {104, 101, 32, 97, 98, 97, 98, 97, 99, 97, 98, 32, 97, 98, 97};
        request.max_tokens = most;
        request.ignore_eos = true;
        request.sampler.temperature = temperature;
        request.sampler.top_k = 6;
        request.sampler.seed = seed;
        return request;
    }
    void ExpectTheModelsDistribution(const std::string& model, const std::string& other,
                                     uint64_t answers, double least = 0.1);

    weft::test::TempDir dir_;
};

// Prompt lookup never changes a token, at any temperature: drafts are compared with tokens sampled
// from logits that have the bits of a one-row step.
TEST_F(Speculation, ALookupChangesNoToken) {
    int64_t accepted = 0, refused = 0;
    for (const char* name :
         {"llama", "Q4_1", "Q8_0", "Q6_K", "BF16", "gemma3", "gpt-oss", "deepseek2", "qwen35"}) {
        SCOPED_TRACE(name);
        const std::string model = Write(name, SpeculationFileOf(name));
        const auto plain = Open(model);
        const auto drafting = Open(model, {.lookup = true, .tokens = 7, .always = true});
        const auto adaptive = Open(model, {.lookup = true});
        ASSERT_TRUE(plain != nullptr && drafting != nullptr && adaptive != nullptr);
        for (const float temperature : {0.0f, 1.0f, 4.0f}) {
            const Request request = Ask(200, temperature, 3);
            const Generation expected = Say(*plain, request), got = Say(*drafting, request);
            ASSERT_EQ(expected.tokens.size(), 200u);
            EXPECT_EQ(got.tokens, expected.tokens) << "temperature " << temperature;
            EXPECT_EQ(got.text, expected.text);
            EXPECT_EQ(got.finish, expected.finish);
            EXPECT_EQ(Say(*adaptive, request).tokens, expected.tokens);
            EXPECT_EQ(expected.drafted, 0);
            EXPECT_EQ(expected.steps, 199);
            EXPECT_LE(got.accepted, got.drafted);
            EXPECT_EQ(got.steps + got.accepted, 199);
            accepted += got.accepted;
            refused += got.drafted - got.accepted;
        }
    }
    EXPECT_GT(accepted, 500);
    EXPECT_GT(refused, 500);
}

TEST_F(Speculation, EveryKvType) {
    const std::string model = Write("model", SpeculationFileOf("llama"));
    for (const KvTypes kv : {KvTypes(DType::kF32), KvTypes(DType::kBF16), KvTypes(DType::kQ8_0),
                             KvTypes(DType::kQ5_1, DType::kQ4_0)}) {
        SCOPED_TRACE(kv.Name());
        const auto plain = Open(model, {}, kv);
        const auto drafting = Open(model, {.lookup = true, .tokens = 5, .always = true}, kv);
        for (const float temperature : {0.0f, 3.0f}) {
            const Request request = Ask(150, temperature, 4);
            EXPECT_EQ(Say(*drafting, request).tokens, Say(*plain, request).tokens);
        }
    }
}

// Greedy answers with a draft model: another model's drafts are mostly rejected, the model's own
// never are.
TEST_F(Speculation, ADraftModelChangesNoGreedyToken) {
    const std::string model = Write("model", SpeculationFileOf("Q8_0"));
    const std::string other = Write("other", SmallFile(1));
    const Request request = Ask(120);
    const Generation expected = Say(*Open(model), request);
    const auto drafted_by = [&](const std::string& draft, bool always) {
        const auto engine = Open(model, {.model = draft, .tokens = 4, .always = always});
        const Generation got = Say(*engine, request);
        EXPECT_EQ(got.tokens, expected.tokens);
        // Another prompt, and the first one again: no state of the other remains.
        Request second = request;
        second.prompt.erase(second.prompt.begin() + 3, second.prompt.begin() + 9);
        EXPECT_EQ(Say(*engine, second).tokens, Say(*Open(model), second).tokens);
        EXPECT_EQ(Say(*engine, request).tokens, expected.tokens);
        return got;
    };
    const Generation own = drafted_by(model, true);
    EXPECT_GT(own.drafted, 90);
    EXPECT_EQ(own.accepted, own.drafted);
    const Generation foreign = drafted_by(other, true);
    EXPECT_GT(foreign.drafted, 200);
    EXPECT_LT(foreign.accepted, foreign.drafted / 2);
    // Row costs are measured and may be wrong on a busy machine; at least one of several tries
    // measures well.
    int64_t fewest = foreign.drafted;
    for (int i = 0; i < 5 && fewest >= foreign.drafted / 2; ++i) {
        fewest = std::min<int64_t>(fewest, drafted_by(other, false).drafted);
    }
    EXPECT_LT(fewest, foreign.drafted / 2);
}

// With penalties, both the model and the draft model apply the penalties of the text so far.
TEST_F(Speculation, PenaltiesAreThoseOfEachToken) {
    const std::string model = Write("model", SpeculationFileOf("llama"));
    Request request = Ask(100);
    request.sampler.repeat_penalty = 1.5f;
    request.sampler.repeat_last = 20;
    const Generation expected = Say(*Open(model), request);
    EXPECT_NE(expected.tokens, Say(*Open(model), Ask(100)).tokens);
    const auto engine = Open(model, {.model = model, .tokens = 4, .always = true});
    const Generation got = Say(*engine, request);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.accepted, got.drafted);
}

TEST_F(Speculation, StopsInTheMiddleOfADraft) {
    const std::string model = Write("model", SpeculationFileOf("llama"));
    const auto plain = Open(model);
    const auto drafting = Open(model, {.lookup = true, .tokens = 7, .always = true});
    const std::string text = Say(*plain, Ask(150)).text;
    for (size_t at = text.size() / 2; at + 3 < text.size(); at += 11) {
        Request request = Ask(150);
        request.stop = {text.substr(at, 3)};
        const Generation expected = Say(*plain, request), got = Say(*drafting, request);
        EXPECT_EQ(got.text, expected.text);
        EXPECT_EQ(got.tokens, expected.tokens);
        EXPECT_EQ(got.finish, expected.finish);
    }
    for (int64_t most : {0, 1, 2, 3, 50}) {
        const Generation expected = Say(*plain, Ask(most)), got = Say(*drafting, Ask(most));
        EXPECT_EQ(got.tokens, expected.tokens);
        EXPECT_EQ(got.finish, expected.finish);
    }
    // Until the end of the context.
    Request open = Ask(-1);
    EXPECT_EQ(Say(*drafting, open).tokens, Say(*plain, open).tokens);
    EXPECT_EQ(Say(*drafting, open).finish, "context");
}

// Sampled answers with drafts: every sequence of four tokens has the probability that the model
// alone gives it, and the same seed gives the same answer. least: share of accepted drafts.
void Speculation::ExpectTheModelsDistribution(const std::string& model, const std::string& other,
                                              uint64_t answers, double least) {
    const auto plain = StepRunner::Start({}, JobOf(model, DType::kF16, 64));
    ASSERT_TRUE(plain.ok());
    const auto drafting =
        Open(model, {.model = other, .tokens = 2, .always = true}, DType::kF16, 64);
    Request request = Ask(4);
    request.sampler = {.temperature = 1.5f, .top_k = 3, .top_p = 0.95f, .repeat_penalty = 1.2f};
    // Enumerates all sequences by definition.
    std::map<std::vector<int32_t>, double> chances;
    const auto expand = [&](const auto& self, std::vector<int32_t> said, double chance) -> void {
        if (said.size() == 4) {
            chances[said] = chance;
            return;
        }
        std::vector<int32_t> text = request.prompt;
        text.insert(text.end(), said.begin(), said.end());
        const auto logits = Logits(**plain, text, false);
        ASSERT_TRUE(logits.ok());
        Distribution next;
        ASSERT_TRUE(Sampler(request.sampler).Distribute(*logits, text, next).ok());
        for (const auto& entry : next.entries) {
            said.push_back(entry.id);
            self(self, said, chance * entry.chance);
            said.pop_back();
        }
    };
    expand(expand, {}, 1);
    ASSERT_GT(chances.size(), 20u);
    std::vector<double> exact;
    std::map<std::vector<int32_t>, size_t> index;
    for (const auto& [said, chance] : chances) {
        index[said] = exact.size();
        exact.push_back(chance);
    }
    std::vector<int> counts(exact.size());
    int64_t accepted = 0, drafted = 0;
    for (uint64_t seed = 0; seed < answers; ++seed) {
        request.sampler.seed = seed;
        const Generation g = Say(*drafting, request);
        ASSERT_TRUE(index.contains(g.tokens));
        ++counts[index[g.tokens]];
        accepted += g.accepted;
        drafted += g.drafted;
        if (seed % 1000 == 0) {
            EXPECT_EQ(Say(*drafting, request).tokens, g.tokens);
        }
    }
    EXPECT_LE(support::Deviate(exact, counts), 5.0);
    EXPECT_GT(static_cast<double>(accepted), least * static_cast<double>(drafted));
    EXPECT_LT(accepted, drafted * 9 / 10);
}

TEST_F(Speculation, DrawnAnswersHaveTheModelsDistribution) {
    ExpectTheModelsDistribution(Write("model", SmallFile(2)), Write("other", SmallFile(1)), 8000);
}

// The head cannot draft all tokens.
TEST_F(Speculation, SoHaveThoseWithAnEagleHead) {
    TinyFile file = support::HeadFile(support::kEagle, true);
    file.form.layer_scale = 0.03f;
    const std::string model = Write("model", file);
    support::WriteEagleHead(dir_ / "head", model, true, 20);
    ExpectTheModelsDistribution(model, dir_ / "head", 3000);
}

// The tokens of a block are drawn independently of each other. (The head predicts few of the tokens
// with which such answers begin.)
TEST_F(Speculation, SoHaveThoseWithADflashHead) {
    TinyFile file = support::HeadFile(support::kDflash, true);
    file.form.layer_scale = 0.03f;
    const std::string model = Write("model", file);
    support::WriteDflashHead(dir_ / "head", model, true);
    ExpectTheModelsDistribution(model, dir_ / "head", 3000, 0.01);
}

// The draft model is the model: the ratio is 1, so every draft is accepted.
TEST_F(Speculation, ItsOwnDrawsAreAlwaysAccepted) {
    const std::string model = Write("model", SpeculationFileOf("Q4_1"));
    const auto engine = Open(model, {.model = model, .tokens = 4, .always = true});
    for (uint64_t seed = 0; seed < 5; ++seed) {
        const Generation g = Say(*engine, Ask(100, 1.0f, seed));
        EXPECT_EQ(g.accepted, g.drafted);
        EXPECT_LE(g.steps, 25);
    }
}

TEST_F(Speculation, WhatDoesNotFitIsRefusedBeforeLoading) {
    const std::string model = Write("model", SpeculationFileOf("llama"));
    Job job;
    job.model = model;
    job.chunk = 1;
    const auto narrow = Engine::Start({}, job, OneAtATime({.lookup = true}));
    ASSERT_FALSE(narrow.ok());
    EXPECT_EQ(narrow.error().code, ErrorCode::kUsage);
    job.chunk = 64;
    const auto missing = Engine::Start({}, job, OneAtATime({.model = dir_ / "none.gguf"}));
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message.find("none.gguf"), std::string::npos);
    TinyFile file = SmallFile(1);
    file.hyper.vocab = 300;
    const std::string foreign = Write("foreign", file);
    const auto different = Engine::Start({}, job, OneAtATime({.model = foreign}));
    ASSERT_FALSE(different.ok());
    EXPECT_EQ(different.error().code, ErrorCode::kUsage);
    EXPECT_NE(different.error().message.find("300 tokens"), std::string::npos);
}

}  // namespace
}  // namespace weft::engine
