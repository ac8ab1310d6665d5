// The last stage's replies give the tokens that rank 0 samples from all logits, with every sampler
// chain.
#include "engine/rank/step_links.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "support/ranks.h"

namespace weft::engine {
namespace {

constexpr int64_t kColumns = 500, kRows = 3;
constexpr size_t kWindowBytes = size_t{1} << 20;

std::vector<float> RandomRows(std::mt19937& random) {
    std::vector<float> rows(kRows * kColumns);
    // (Few distinct values: both must break ties alike.)
    for (float& value : rows) value = static_cast<float>(random() % 64) * 0.25f;
    return rows;
}

struct Chain {
    SamplerOptions options;
    RowRequest::Kind kind;
    size_t row_bytes;
};
const Chain kChains[] = {
    {{}, RowRequest::Kind::kBest, 8},
    {{.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .seed = 1}, RowRequest::Kind::kBest, 320},
    {{.temperature = 1, .seed = 2}, RowRequest::Kind::kToken, 8},
    {{.temperature = 0.7f, .top_p = 0.8f, .min_p = 0.05f, .seed = 3}, RowRequest::Kind::kToken, 8},
    {{.temperature = 1, .top_k = 1000, .seed = 4}, RowRequest::Kind::kToken, 8},
    {{.temperature = 1, .repeat_penalty = 1.5f, .seed = 5}, RowRequest::Kind::kAll, 4 * kColumns},
    {{.bias = {{3, 2.0f}}}, RowRequest::Kind::kAll, 4 * kColumns},
};

std::vector<RowRequest> AskForAll(const Sampler& sampler) {
    std::vector<RowRequest> asks;
    for (int64_t row = 0; row < kRows; ++row) asks.push_back(sampler.Ask(false, kColumns, row));
    return asks;
}

// Runs `stage` with the last stage's links and `first` with rank 0's.
template <typename Stage, typename First>
void OnTwoRanks(const Stage& stage, const First& first) {
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, kWindowBytes).value();
    weft::test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const auto comm =
            coll::Comm::Make(fabric, {0, 1}, {0, kWindowBytes, 0, net::kFlags}, 5'000).value();
        StepLinks links(*comm);
        fabric.rank == 1 ? stage(links, *comm) : first(links, *comm);
    });
}

void ExpectSameTokens(const Chain& chain) {
    constexpr int kSteps = 8;
    std::vector<std::vector<RowRequest>> asks;  // both ranks derive them from the step
    std::vector<std::vector<float>> rows;
    std::vector<int32_t> wanted;
    Sampler reference(chain.options);
    std::mt19937 random(7);
    for (int step = 0; step < kSteps; ++step) {
        rows.push_back(RandomRows(random));
        asks.push_back(AskForAll(reference));
        EXPECT_EQ(asks.back()[0].kind, chain.kind);
        for (size_t row = 0; row < kRows; ++row) {
            const auto logits =
                std::span<const float>(rows.back()).subspan(row * kColumns, kColumns);
            wanted.push_back(reference.Sample(logits, wanted).value());
        }
    }
    OnTwoRanks(
        [&](StepLinks& links, coll::Comm& comm) {
            for (size_t step = 0; step < kSteps; ++step) {
                links.Expect(asks[step]);
                ASSERT_TRUE(links.Send(std::as_bytes(std::span(rows[step])), 0, {}).ok());
            }
            EXPECT_EQ(comm.sent_bytes(), kSteps * kRows * chain.row_bytes);
        },
        [&](StepLinks& links, coll::Comm&) {
            Sampler sampler(chain.options);
            std::vector<int32_t> tokens;
            std::vector<float> value(kRows * kColumns);
            for (size_t step = 0; step < kSteps; ++step) {
                ASSERT_EQ(AskForAll(sampler), asks[step]);
                links.Expect(asks[step]);
                ASSERT_TRUE(links.Recv(std::as_writable_bytes(std::span(value)), 1, {}).ok());
                for (size_t row = 0; row < kRows; ++row) {
                    const RowAnswer* answer = links.Find(static_cast<int64_t>(row));
                    const auto whole =
                        std::span<const float>(value).subspan(row * kColumns, kColumns);
                    const LogitsRow logits =
                        answer != nullptr ? LogitsRow(*answer) : LogitsRow(whole);
                    tokens.push_back(sampler.Sample(logits, tokens).value());
                }
            }
            EXPECT_EQ(tokens, wanted);
        });
}

TEST(StepLinks, GivesTheTokensOfAllLogits) {
    for (const Chain& chain : kChains) ExpectSameTokens(chain);
}

TEST(StepLinks, ValuesWithoutAsksAreSentWhole) {
    std::mt19937 random(8);
    const std::vector<float> rows = RandomRows(random);
    OnTwoRanks(
        [&](StepLinks& links, coll::Comm&) {
            ASSERT_TRUE(links.Send(std::as_bytes(std::span(rows)), 0, {}).ok());
        },
        [&](StepLinks& links, coll::Comm&) {
            std::vector<float> value(rows.size());
            ASSERT_TRUE(links.Recv(std::as_writable_bytes(std::span(value)), 1, {}).ok());
            EXPECT_EQ(value, rows);
            EXPECT_EQ(links.Find(0), nullptr);
        });
}

TEST(StepLinks, LogitsThatAreNotFiniteAreAnError) {
    const std::vector<float> rows(kColumns, std::numeric_limits<float>::quiet_NaN());
    for (const Chain& chain : {kChains[0], kChains[2]}) {
        const RowRequest ask = Sampler(chain.options).Ask(false, kColumns, 0);
        OnTwoRanks(
            [&](StepLinks& links, coll::Comm&) {
                links.Expect({&ask, 1});
                ASSERT_TRUE(links.Send(std::as_bytes(std::span(rows)), 0, {}).ok());
            },
            [&](StepLinks& links, coll::Comm&) {
                links.Expect({&ask, 1});
                std::vector<float> value(kColumns);
                ASSERT_TRUE(links.Recv(std::as_writable_bytes(std::span(value)), 1, {}).ok());
                Sampler sampler(chain.options);
                const auto token = sampler.Sample(*links.Find(0), {});
                ASSERT_FALSE(token.ok());
                EXPECT_EQ(token.error().code, ErrorCode::kCorrupt);
            });
    }
}

TEST(StepLinks, RefusesTokensOutsideOfTheVocabulary) {
    for (const int32_t token : {-1, -2, static_cast<int32_t>(kColumns)}) {
        for (const RowRequest::Kind kind : {RowRequest::Kind::kBest, RowRequest::Kind::kToken}) {
            OnTwoRanks(
                [&](StepLinks&, coll::Comm& comm) {
                    const backend::Candidate answer{1, token};
                    ASSERT_TRUE(comm.Send(std::as_bytes(std::span(&answer, 1)), 0, {}).ok());
                },
                [&](StepLinks& links, coll::Comm&) {
                    const RowRequest ask{kind, 1, {}};
                    links.Expect({&ask, 1});
                    std::vector<float> value(kColumns);
                    const Status got = links.Recv(std::as_writable_bytes(std::span(value)), 1, {});
                    ASSERT_FALSE(got.ok());
                    EXPECT_EQ(got.error().code, ErrorCode::kCorrupt);
                });
        }
    }
}

// Both ranks check that a value has one row per RowRequest, with as many logits as it requests.
TEST(StepLinks, RefusesValuesThatDoNotFitTheAsks) {
    struct Case {
        std::vector<RowRequest> asks;
        const char* error;
    };
    const RowRequest all, best{RowRequest::Kind::kBest, 2, {}};
    const RowRequest more{RowRequest::Kind::kBest, 8, {}}, fewer{RowRequest::Kind::kBest, -1, {}};
    const Case cases[] = {
        {{all, best}, "are 28 bytes; expected 2 equal rows of float32"},
        {std::vector<RowRequest>(8, all), "are 28 bytes; expected 8 equal rows of float32"},
        {{more}, "the 8 best logits of a row; expected 1 to 7"},
        {{fewer}, "the -1 best logits of a row; expected 1 to 7"}};
    for (const Case& one : cases) {
        const auto expect_error = [&](const Status& status) {
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, ErrorCode::kCorrupt);
            EXPECT_NE(status.error().message.find(one.error), std::string::npos)
                << status.error().message;
        };
        OnTwoRanks(
            [&](StepLinks& links, coll::Comm&) {
                const std::vector<float> value(7);
                links.Expect(one.asks);
                expect_error(links.Send(std::as_bytes(std::span(value)), 0, {}));
            },
            [&](StepLinks& links, coll::Comm&) {
                std::vector<float> value(7);
                links.Expect(one.asks);
                expect_error(links.Recv(std::as_writable_bytes(std::span(value)), 1, {}));
            });
    }
}

}  // namespace
}  // namespace weft::engine
