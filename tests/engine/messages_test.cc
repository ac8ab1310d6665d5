// Messages between ranks: jobs, steps and reports decode to what was encoded; damaged messages are
// refused.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "cluster/gather_rounds.h"
#include "engine/job.h"
#include "engine/rank/rank.h"
#include "engine/rank/step_message.h"
#include "engine/rank/trace.h"
#include "engine/start/examine.h"

namespace weft::engine {
namespace {

TEST(Job, SurvivesTheWay) {
    Job job;
    job.model = "a \"model\".gguf";
    job.tp = 3;
    job.pp = 2;
    job.split = {3, 2.5, 1};
    job.threads = 4;
    job.ctx = 1 << 20;
    job.chunk = 7;
    job.max_outputs = 9;
    job.kv_dtype = {DType::kQ8_0, DType::kQ4_0};
    job.reference = job.exact = job.trace = job.verify = job.verify_model = true;
    const auto back = JobFromJson(JobToJson(job));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(JobToJson(*back), JobToJson(job));
    EXPECT_EQ(back->model, job.model);
    EXPECT_EQ(back->split, job.split);
    EXPECT_EQ(back->kv_dtype, KvTypes(DType::kQ8_0, DType::kQ4_0));
}

// The header of a fed model may be any bytes.
TEST(Terms, SurviveTheWay) {
    Terms terms;
    terms.identity = "bytes";
    terms.fingerprint = "0123";
    terms.identities = {"cpu-a", "", "vulkan"};
    terms.tp = 2;
    terms.pp = 3;
    terms.boots = {"x", "y"};
    for (int i = 0; i < 512; ++i) terms.header += static_cast<char>(i * 7);
    const auto back = DecodeTerms(EncodeTerms(terms));
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->fingerprint, terms.fingerprint);
    EXPECT_EQ(back->identity, terms.identity);
    EXPECT_EQ(back->adapters, "");
    EXPECT_EQ(back->identities, terms.identities);
    EXPECT_EQ(back->tp, 2);
    EXPECT_EQ(back->pp, 3);
    EXPECT_EQ(back->boots, terms.boots);
    EXPECT_EQ(back->header, terms.header);
    EXPECT_TRUE(DecodeTerms("").ok());
    for (const std::string& text :
         {std::string("{}"), EncodeTerms(terms).substr(1), std::string("\xa0")}) {
        const auto none = DecodeTerms(text);
        ASSERT_FALSE(none.ok());
        EXPECT_EQ(none.error().code, ErrorCode::kCorrupt);
    }
}

TEST(Job, RejectsMalformedJobs) {
    for (const char* text : {"", "{}", "[1]", "{\"model\": 3}"}) {
        const auto job = JobFromJson(text);
        ASSERT_FALSE(job.ok()) << text;
        EXPECT_EQ(job.error().code, ErrorCode::kCorrupt);
    }
    nlohmann::json json = nlohmann::json::parse(JobToJson(Job()));
    json["kv_dtype"] = "Q9";
    EXPECT_NE(JobFromJson(json.dump()).error().message.find("kv_dtype"), std::string::npos);
}

TEST(Job, RefusesNumbersOutOfRange) {
    const nlohmann::json good = nlohmann::json::parse(JobToJson(Job()));
    ASSERT_TRUE(JobFromJson(good.dump()).ok());
    for (const char* field : {"tp", "pp", "threads", "ctx", "chunk", "max_outputs"}) {
        for (int64_t value : {int64_t{-1}, int64_t{1} << 31 | 1}) {
            nlohmann::json json = good;
            json[field] = value;
            const auto job = JobFromJson(json.dump());
            ASSERT_FALSE(job.ok()) << field << " " << value;
            EXPECT_NE(job.error().message.find(field), std::string::npos) << job.error().message;
        }
    }
    nlohmann::json json = good;
    json["split"] = {1.0, -2.0};
    EXPECT_FALSE(JobFromJson(json.dump()).ok());
}

TEST(Report, SurvivesTheWay) {
    RankReport report;
    report.rank = 2;
    report.host = "b";
    report.rss_bytes = 1ull << 40;
    report.weight_bytes = 3;
    report.kv_bytes = 4;
    report.read_bytes = 5;
    report.load_s = 0.5;
    report.all_reduces = 61;
    report.all_reduce_us = {1.5, 2.25};
    const auto back = ReportFromJson(ReportToJson(report));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(ReportToJson(*back), ReportToJson(report));
    EXPECT_EQ(back->rss_bytes, 1ull << 40);
    EXPECT_EQ(back->all_reduce_us, report.all_reduce_us);
    EXPECT_EQ(ReportFromJson("{}").error().code, ErrorCode::kCorrupt);
    // The largest one travels in the first round of a gather, as a short value.
    RankReport large = report;
    for (int i = 0; i < 128; ++i) large.all_reduce_us.push_back(123'456.7);
    EXPECT_LE(ReportToJson(large).size(), cluster::GatherRounds::kMostShort / 4);
    report.sensors = {"a", "b"};
    report.sensor_joules = {1.5};
    const auto uneven = ReportFromJson(ReportToJson(report));
    ASSERT_FALSE(uneven.ok());
    EXPECT_EQ(uneven.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(uneven.error().message.find("rank 2: 2 sensors, but 1"), std::string::npos);
}

StepData RandomStep(std::mt19937& random) {
    const auto below = [&](uint32_t n) { return static_cast<int32_t>(random() % n); };
    StepData step;
    step.number = (int64_t{below(1000)} << 32) + below(1u << 30);
    const int32_t tokens = 1 + below(40);
    for (int32_t i = 0; i < tokens; ++i) {
        step.tokens.push_back(below(50'000));
        step.positions.push_back(below(9000));
        if (below(3) == 0) step.output_rows.push_back(i);
    }
    for (int32_t i = below(4); i >= 0; --i) {
        step.sequences.push_back({below(40), below(40), below(9000), {}});
        StepData::Sequence& s = step.sequences.back();
        for (int32_t p = below(30); p > 0; --p) s.pages.push_back(below(300));
        s.state_from = below(9) - 1;
        s.state_to = below(9);
        s.prompt_rows = std::min(s.row_count, below(40));
        for (int32_t w = below(4); w > 0; --w) s.state_writes.push_back({below(40), below(9)});
    }
    for (int32_t i = below(4); i > 0; --i) step.copies.push_back({below(300), below(300)});
    for (size_t i = 0; step.tokens.size() % 2 == 0 && i < step.output_rows.size(); ++i) {
        const RowChain chain{1.5f, 0.5f, 0.25f, (uint64_t{1} << 53) - 1};
        const RowRequest asks[] = {
            {}, {RowRequest::Kind::kBest, 1 + below(99), {}}, {RowRequest::Kind::kToken, 0, chain}};
        step.asks.push_back(asks[below(3)]);
    }
    for (int32_t i = below(4); i > 0; --i) {
        KeyedPage& page = step.keyed.emplace_back();
        for (uint8_t& byte : page.key) byte = static_cast<uint8_t>(below(256));
        page.place = below(300);
        page.is_state = below(2) == 1;
        page.is_used = !page.is_state && below(2) == 1;
    }
    step.name = std::string(static_cast<size_t>(below(9)), 'n');
    return step;
}

TEST(StepMessage, SurvivesTheWay) {
    std::mt19937 random(5);
    for (int i = 0; i < 300; ++i) {
        const StepData step = RandomStep(random);
        std::vector<int32_t> words, again;
        EncodeStep(step, words);
        StepData back = RandomStep(random);  // its previous content must not matter
        ASSERT_TRUE(DecodeStep(words, back).ok());
        EXPECT_EQ(back.number, step.number);
        EXPECT_EQ(back.tokens, step.tokens);
        EXPECT_EQ(back.output_rows, step.output_rows);
        EXPECT_EQ(back.copies.size(), step.copies.size());
        EXPECT_EQ(back.asks, step.asks);
        EncodeStep(back, again);
        EXPECT_EQ(again, words);
    }
}

// A message cut anywhere is refused. A message with one changed word is refused or decodes to
// exactly these words. Every rank except the first gets its steps from one other rank, which
// forwards them, and is at most as far from rank 0 as its stage number.
TEST(StepMessage, GoesFromStageToStage) {
    for (int tp = 1; tp <= 4; ++tp) {
        for (int pp = 1; pp <= 5; ++pp) {
            std::vector<int> senders(static_cast<size_t>(tp * pp));
            for (int rank = 0; rank < tp * pp; ++rank) {
                for (const int to : StepChannel::RouteOf(rank, tp, pp).to) {
                    ASSERT_LT(to, tp * pp);
                    EXPECT_EQ(StepChannel::RouteOf(to, tp, pp).from, rank);
                    EXPECT_EQ(to / tp - rank / tp, rank == 0 && to < tp ? 0 : 1);
                    ++senders[static_cast<size_t>(to)];
                }
            }
            for (size_t rank = 0; rank < senders.size(); ++rank) {
                EXPECT_EQ(senders[rank], rank == 0 ? 0 : 1) << rank << " of " << tp << " x " << pp;
            }
        }
    }
}

TEST(StepMessage, DamagedOnesAreRefused) {
    std::mt19937 random(6);
    for (int i = 0; i < 100; ++i) {
        std::vector<int32_t> words;
        EncodeStep(RandomStep(random), words);
        StepData back;
        for (size_t size = 0; size < words.size(); ++size) {
            EXPECT_FALSE(DecodeStep(std::span(words).first(size), back).ok()) << size;
        }
        for (size_t at = 0; at < words.size(); ++at) {
            for (int32_t value : {-1, 0, 1, INT32_MAX, INT32_MIN}) {
                std::vector<int32_t> damaged = words, again;
                damaged[at] = value;
                if (!DecodeStep(damaged, back).ok()) continue;
                EncodeStep(back, again);
                EXPECT_EQ(again, damaged) << "word " << at;
            }
        }
    }
}

// An error names the value and what was expected.
TEST(StepMessage, ErrorsNameTheValue) {
    StepData step;
    step.Append(std::vector<int32_t>{5, 6}, 0, {.pages = {1}});
    step.output_rows = {1};
    step.asks = {{RowRequest::Kind::kToken, 0, {.temperature = 0.5f}}};
    std::vector<int32_t> words;
    EncodeStep(step, words);
    constexpr size_t kAsk = 11 + 5, kSequence = kAsk + 6;
    const auto bits = [](float value) { return std::bit_cast<int32_t>(value); };
    struct Case {
        size_t at;
        int32_t value;
        const char* error;
    };
    const Case cases[] = {
        {0, 3, "its number of words is 3; expected 33, as received"},
        {1, 77, "its kind is 77; expected 0 to 8"},
        {5, -2, "its number of sequences is -2; expected 0 or more"},
        {4, 40, "its number of tokens and output rows is 40 and 1; expected at most 22 words"},
        {7, 20, "it ends within page copy 8; expected"},
        {8, 3, "its number of asks is 3; expected 0 or 1"},
        {kAsk, -9, "the number of best logits of an ask is -9; expected -1 or more"},
        {kAsk + 1, bits(-1), "the temperature of an ask is -1; expected more than 0"},
        {kAsk + 2, bits(NAN), "top_p of an ask is nan; expected more than 0 and at most 1"},
        {kAsk + 3, bits(1), "min_p of an ask is 1; expected 0 or more and less than 1"},
        {kAsk + 5, -1, "the random number of an ask is 18446744069414584320; expected less than"},
        {kSequence + 3, -4, "the adapter of a sequence is -4; expected 0 or more"},
        {kSequence + 6, -1, "prompt rows of a sequence is -1; expected 0 to 2, its rows"},
        {kSequence + 6, 3, "prompt rows of a sequence is 3; expected 0 to 2, its rows"},
        {kSequence + 8, -1, "the number of state writes is -1; expected 0 or more"},
        {kSequence + 9, -1, "the number of pages of a sequence is -1; expected 0 or more"},
        {kSequence + 9, 2, "it ends within sequence 0; expected"},
        {kSequence + 9, 0, "the number of words after its name is 1; expected 0"}};
    for (const Case& one : cases) {
        std::vector<int32_t> damaged = words;
        damaged[one.at] = one.value;
        const Status decoded = DecodeStep(damaged, step);
        ASSERT_FALSE(decoded.ok()) << one.error;
        EXPECT_EQ(decoded.error().code, ErrorCode::kCorrupt);
        EXPECT_NE(decoded.error().message.find(one.error), std::string::npos)
            << decoded.error().message;
    }
}

// The trace separates compute, wait and wire time and names ranks without events.
TEST(Trace, IsJsonWithOneProcessARank) {
    program::Program program;
    program::Shape shape;
    const program::ValueId x = program.Emit(program::Zero{}, {}, "x", shape);
    program.Emit(program::AllReduce{}, {x}, "sum", shape);
    StepData step;
    step.number = 7;
    const backend::OpTiming timings[] = {{0, 1000, 3000, 0}, {1, 3000, 9000, 8000}};
    std::string events;
    AppendTrace(program, step.number, timings, 1, events);
    const auto json = nlohmann::json::parse(TraceFile({"", events}));
    int compute = 0, wait = 0, wire = 0, names = 0;
    for (const auto& event : json["traceEvents"]) {
        if (event["ph"] == "M") {
            ++names;
            continue;
        }
        EXPECT_EQ(event["pid"], 1);
        EXPECT_EQ(event["args"]["step"], 7);
        const double us = event["dur"];
        if (event["tid"] == 0) compute += static_cast<int>(us);
        if (event["tid"] == 1) wait += static_cast<int>(us);
        if (event["tid"] == 2) wire += static_cast<int>(us);
    }
    EXPECT_EQ(names, 8);
    EXPECT_EQ(compute, 2);
    EXPECT_EQ(wait, 5);
    EXPECT_EQ(wire, 1);
}

}  // namespace
}  // namespace weft::engine
