// Drafts in a batch: their best number, and that answers with drafts equal those without, whatever
// options a request has.
#include "engine/batch/step_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "engine/engine.h"
#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

// Sequences with repetitive text, so that drafts are good.
class Guessers {
  public:
    explicit Guessers(size_t count) : texts_(count), answers_(count), drafts_(count) {
        for (size_t i = 0; i < count; ++i) {
            for (int32_t k = 0; k < 60; ++k) texts_[i].push_back(k % 6 + static_cast<int32_t>(i));
            answers_[i].lookup.emplace(texts_[i]);
        }
    }
    // Total number of drafted tokens of the next step.
    int64_t Choose(StepDrafts& drafts, int64_t left = 100) {
        std::vector<StepDrafts::Guesser> guessers;
        for (size_t i = 0; i < texts_.size(); ++i) {
            guessers.push_back({.answer = &answers_[i], .left = left});
            guessers.back().text.tokens = texts_[i];
            guessers.back().text.draft = &drafts_[i];
        }
        EXPECT_TRUE(drafts.Choose(guessers).ok());
        int64_t all = 0;
        for (const auto& draft : drafts_) all += static_cast<int64_t>(draft.size());
        return all;
    }
    const std::vector<int32_t>& draft(size_t i) const { return drafts_[i]; }

  private:
    std::vector<std::vector<int32_t>> texts_;
    std::vector<AnswerDrafts> answers_;
    std::vector<std::vector<int32_t>> drafts_;
};

// Sets the cost of a row to `each` of the fixed cost of a step.
void Teach(StepDrafts& drafts, double each) {
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 48, 64, 96}) {
        drafts.LearnStep(rows, 1e-3 * (1 + each * static_cast<double>(rows)));
    }
}

TEST(StepDrafts, RowsThatCostLittleAreTaken) {
    StepDrafts drafts({.lookup = true});
    Guessers one(1);
    EXPECT_EQ(one.Choose(drafts), 0) << "nothing is known of what steps cost";
    Teach(drafts, 0.02);
    EXPECT_GE(one.Choose(drafts), 8);
    for (size_t i = 0; i < one.draft(0).size(); ++i) {
        EXPECT_EQ(one.draft(0)[i], static_cast<int32_t>(i % 6));
    }
    EXPECT_LE(one.Choose(drafts, 3), 3);
    EXPECT_EQ(one.Choose(drafts, 0), 0);
}

// A drafter that must not be used yet: a recovery replaces its ranks.
class Untouched final : public Drafter {
  public:
    Status Serve(Rank&) override { return {}; }
    double ratio() const override { return ++used; }
    const StepCosts& costs() const override { return costs_; }
    bool at_once() const override { return ++used == 0; }
    Status Guess(std::span<const DraftText>) override { return {}; }
    mutable int used = 0;

  private:
    StepCosts costs_;
};

// Requests begin on threads other than the engine's.
TEST(StepDrafts, ANewAnswerDoesNotTouchTheDrafter) {
    for (const bool judged : {false, true}) {
        for (const char* model : {DraftOptions::kDraftHead, "model.gguf"}) {
            StepDrafts drafts({.model = model, .tokens = 4, .judged = judged});
            Untouched drafter;
            drafts.Use(drafter);
            const std::vector<int32_t> prompt = {1, 2, 3};
            AnswerDrafts answer = drafts.Begin(prompt, {.temperature = 1});
            EXPECT_EQ(answer.own.has_value(), judged);
            EXPECT_EQ(drafter.used, 0);
            std::vector<int32_t> draft;
            StepDrafts::Guesser guesser{.answer = &answer, .left = 4};
            guesser.text.tokens = prompt;
            guesser.text.draft = &draft;
            EXPECT_TRUE(drafts.Choose(std::span(&guesser, 1)).ok());
            EXPECT_GT(drafter.used, 0);
        }
    }
}

// If each row costs as much as a token, drafts only lose.
TEST(StepDrafts, WhereEveryRowCostsAsMuchThereAreNone) {
    StepDrafts drafts({.lookup = true});
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 48, 64, 96}) {
        drafts.LearnStep(rows, 1e-3 * static_cast<double>(rows));
    }
    Guessers many(32), one(1);
    EXPECT_EQ(many.Choose(drafts), 0);
    EXPECT_EQ(one.Choose(drafts), 0);
    StepDrafts cheap({.lookup = true});
    Teach(cheap, 0.02);
    EXPECT_GT(many.Choose(cheap), 16);
    EXPECT_LE(many.Choose(cheap), cheap.most_rows(32));
}

// Row costs may have been measured at a bad time, so drafts are tried again now and then.
TEST(StepDrafts, TheyAreTriedAgainNowAndThen) {
    StepDrafts drafts({.lookup = true});
    for (const int64_t rows : {1, 2, 4, 8, 16, 32}) {
        drafts.LearnStep(rows, 1e-3 * static_cast<double>(rows));
    }
    Guessers one(1);
    int tried = 0;
    for (int i = 0; i < 1000; ++i) {
        const int64_t guesses = one.Choose(drafts);
        EXPECT_LE(guesses, 4);
        tried += guesses > 0 ? 1 : 0;
    }
    EXPECT_EQ(tried, 3);
}

TEST(StepDrafts, CountsAreByPlace) {
    StepDrafts drafts({.lookup = true, .tokens = 4});
    AnswerDrafts answer;
    drafts.Count(answer, 0, 0, 0);
    drafts.Count(answer, 4, 1, 0);
    drafts.Count(answer, 3, 3, 2);
    drafts.Count(answer, 4, 4, 4);
    EXPECT_EQ(drafts.counts().drafts, 3);
    EXPECT_EQ(drafts.counts().drafted, 11);
    EXPECT_EQ(drafts.counts().accepted, 6);
    EXPECT_EQ(drafts.counts().by_place, (std::vector<int64_t>{2, 2, 1, 1}));
}

// The whole answer, with tokens' probabilities.
class Record final : public Listener {
  public:
    void OnToken(const GeneratedToken& token, std::string_view text) override {
        ids.push_back(token.chance.id);
        chances.push_back(token.chance.logprob);
        for (const TokenChance& best : token.best) chances.push_back(best.logprob);
        said += text;
        if (conclude != nullptr && ids.size() == conclude_at) conclude->StopEarly(id);
    }
    void OnEnd(std::string_view rest, const Result<Ending>& result) override {
        said += rest;
        ASSERT_TRUE(result.ok()) << result.error().message;
        ending = *result;
    }
    std::vector<int32_t> ids;
    std::vector<float> chances;
    std::string said;
    Ending ending;
    Engine* conclude = nullptr;
    int64_t id = 0;
    size_t conclude_at = 0;
};

class BatchDrafts : public testing::Test {
  protected:
    BatchDrafts() {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.layers = 2;
        support::WriteTinyGguf(dir_ / "model", file);
    }
    std::unique_ptr<Engine> Open(bool drafts) {
        Job job;
        job.model = dir_ / "model";
        job.threads = 1;
        job.ctx = 320;
        job.kv_tokens = 2048;
        job.chunk = 64;
        EngineOptions options{.max_seqs = 8};
        if (drafts) options.draft = {.lookup = true, .tokens = 7, .always = true};
        auto engine = Engine::Start({}, job, options);
        EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
        return engine.ok() ? std::move(*engine) : nullptr;
    }
    static Request Ask(int64_t most) {
        Request request;
        request.prompt = {104, 101, 32, 97, 98, 97, 98, 97, 99, 97, 98, 32, 97, 98, 97};
        request.max_tokens = most;
        request.ignore_eos = true;
        return request;
    }
    // Runs both engines and expects equal answers; returns those of the engine with drafts.
    std::vector<std::shared_ptr<Record>> Compare(const std::vector<Request>& requests,
                                                 size_t conclude_at = 0) {
        std::vector<std::shared_ptr<Record>> records[2];
        for (const bool drafts : {false, true}) {
            auto engine = Open(drafts);
            if (engine == nullptr) return {};
            for (const Request& request : requests) {
                auto record = std::make_shared<Record>();
                record->conclude = conclude_at > 0 ? engine.get() : nullptr;
                record->conclude_at = conclude_at;
                const auto id = engine->Submit(request, record);
                EXPECT_TRUE(id.ok());
                record->id = id.ok() ? *id : 0;
                records[drafts].push_back(record);
            }
            engine->Drain();
            EXPECT_TRUE(engine->Run().ok());
            if (!drafts) continue;
            counts_ = engine->stats().drafts;
            steps_ = engine->stats().steps;
        }
        for (size_t i = 0; i < requests.size(); ++i) {
            SCOPED_TRACE(i);
            const Record &plain = *records[0][i], &drafted = *records[1][i];
            EXPECT_EQ(drafted.ids, plain.ids);
            EXPECT_EQ(drafted.said, plain.said);
            EXPECT_EQ(drafted.chances, plain.chances);
            EXPECT_EQ(drafted.ending.finish, plain.ending.finish);
            EXPECT_EQ(drafted.ending.generated_tokens, plain.ending.generated_tokens);
            EXPECT_EQ(drafted.ending.stop_text, plain.ending.stop_text);
        }
        return records[1];
    }
    weft::test::TempDir dir_;
    DraftCounts counts_;
    int64_t steps_ = 0;
};

TEST_F(BatchDrafts, StopsInTheMiddleOfADraft) {
    const auto whole = Compare({Ask(150)});
    ASSERT_EQ(whole.size(), 1u);
    EXPECT_GT(counts_.accepted, 20);
    EXPECT_EQ(steps_ + counts_.accepted, 150);
    const std::string text = whole[0]->said;
    std::vector<Request> requests;
    for (size_t at = text.size() / 2; at + 3 < text.size(); at += 7) {
        requests.push_back(Ask(150));
        requests.back().stop = {text.substr(at, 3)};
    }
    for (const int64_t most : {1, 2, 3, 50, -1}) requests.push_back(Ask(most));
    Compare(requests);
}

// Penalties and biases follow each token; probabilities are the model's after each token.
TEST_F(BatchDrafts, WhateverTheSampler) {
    std::vector<Request> requests;
    for (uint64_t seed = 0; seed < 4; ++seed) {
        for (const float temperature : {0.0f, 0.7f, 3.0f}) {
            Request request = Ask(100);
            request.logprobs = seed % 2 == 0 ? 3 : 0;
            SamplerOptions& sampler = request.sampler;
            sampler.temperature = temperature;
            sampler.seed = seed;
            sampler.top_k = seed == 1 ? 6 : 0;
            sampler.top_p = seed == 2 ? 0.8f : 1.0f;
            sampler.repeat_penalty = seed == 2 ? 1.3f : 1.0f;
            sampler.frequency_penalty = seed == 3 ? 0.4f : 0.0f;
            sampler.presence_penalty = seed == 3 ? 0.3f : 0.0f;
            if (seed == 1) sampler.bias = {{97, 2.0f}, {98, -2.0f}};
            requests.push_back(request);
        }
    }
    Compare(requests);
    EXPECT_GT(counts_.accepted, 50);
    EXPECT_GT(counts_.drafted, counts_.accepted + 50);
}

// A grammar's mask depends on each token before it; forbidden drafts take no rows.
TEST_F(BatchDrafts, AnswersOfAGivenForm) {
    const auto engine = Open(false);
    ASSERT_NE(engine, nullptr);
    const auto trie = grammar::TokenTrie::Make(engine->tokenizer());
    const auto grammar = grammar::GrammarFromGbnf("root ::= (\"ab\" [a-c] \" \"){25,30} \"end\"");
    ASSERT_TRUE(grammar.ok());
    const auto matcher = grammar::Matcher::Make(*grammar, trie);
    ASSERT_TRUE(matcher.ok());
    std::vector<Request> requests;
    for (uint64_t seed = 0; seed < 6; ++seed) {
        Request request = Ask(150);
        request.matcher = *matcher;
        request.sampler.temperature = seed == 0 ? 0.0f : 1.5f;
        request.sampler.seed = seed;
        if (seed == 5) request.reasoning = {.end = "a", .begun = true};
        requests.push_back(request);
    }
    const auto records = Compare(requests);
    ASSERT_EQ(records.size(), requests.size());
    EXPECT_GT(counts_.accepted, 50);
    EXPECT_EQ(records[1]->said.substr(0, 2), "ab");
}

// A listener that ends its request during a draft gets no more of its tokens.
TEST_F(BatchDrafts, ConcludedInTheMiddleOfADraft) {
    for (size_t at = 40; at < 48; ++at) {
        const auto records = Compare({Ask(150), Ask(120)}, at);
        ASSERT_EQ(records.size(), 2u);
        EXPECT_EQ(records[0]->ids.size(), at);
    }
}

TEST_F(BatchDrafts, WithoutRowsForGuessesThereIsNoServer) {
    Job job;
    job.model = dir_ / "model";
    job.ctx = 64;
    job.chunk = 8;
    const auto engine = Engine::Start({}, job, {.max_seqs = 8, .draft = {.lookup = true}});
    ASSERT_FALSE(engine.ok());
    EXPECT_EQ(engine.error().code, ErrorCode::kUsage);
    job.chunk = 64;
    job.outputs = model::Outputs::kHidden;
    const auto mute = Engine::Start({}, job, {.max_seqs = 8, .draft = {.model = dir_ / "model"}});
    ASSERT_FALSE(mute.ok());
    EXPECT_EQ(mute.error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace weft::engine
