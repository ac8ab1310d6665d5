// weft bench serve against an endpoint with known times: tests/serve/fake_endpoint.py.
#include "load/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/file.h"
#include "load/events.h"
#include "support/limits.h"
#include "support/python_server.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::load {
namespace {

using nlohmann::json;
using support::operator+;
using support::Ran;
using support::RunWeft;
using support::Words;

class Load : public testing::Test {
  protected:
    void SetUp() override {
        if (std::system("command -v python3 > /dev/null") != 0) {
            GTEST_SKIP() << "python3 is not installed";
        }
        endpoint_ = std::make_unique<test::PythonServer>("serve/fake_endpoint.py", 1);
        options_.url = fmt::format("http://127.0.0.1:{}", endpoint_->port());
        options_.model = "m";
        options_.requests = 8;
        options_.clients = 4;
        options_.input_len = 20;
        options_.output_len = 11;
    }
    Result<LoadReport> Run() { return RunLoad(options_, nullptr, {}); }
    LoadReport Good() {
        const auto report = Run();
        EXPECT_TRUE(report.ok()) << report.error().message;
        return report.ok() ? *report : LoadReport();
    }

    std::unique_ptr<test::PythonServer> endpoint_;
    LoadOptions options_;
};

// First token after 50 ms, then ten more every 10 ms. The machine may be slow but never early (by
// more than the timer's resolution).
TEST_F(Load, MeasuresTheEndpointsTimes) {
    const LoadReport r = Good();
    EXPECT_EQ(r.completed, 8);
    EXPECT_EQ(r.failed, 0);
    EXPECT_TRUE(r.ids);
    EXPECT_EQ(r.most_at_once, 4);
    EXPECT_EQ(r.input_tokens, 8 * 20);
    EXPECT_EQ(r.output_tokens, 8 * 11);
    EXPECT_GE(r.ttft_ms.median, 49);
    EXPECT_LE(r.ttft_ms.median, test::LimitMs(1000));
    EXPECT_GE(r.tpot_ms.mean, 7);
    EXPECT_LE(r.tpot_ms.median, test::LimitMs(200));
    EXPECT_GE(r.itl_ms.mean, 7);
    EXPECT_GE(r.e2el_ms.mean, 149);
    EXPECT_GE(r.e2el_ms.p99, r.e2el_ms.p95);
    EXPECT_GE(r.e2el_ms.p95, r.e2el_ms.median);
    EXPECT_GE(r.duration_s, 0.29);
    EXPECT_NEAR(r.output_rate, 88 / r.duration_s, 1e-6);
    EXPECT_NEAR(r.total_rate, (88 + 160) / r.duration_s, 1e-6);
}

TEST_F(Load, ChatsAndWordsAndEventsInPieces) {
    options_.model = "slow-line";
    EXPECT_EQ(Good().output_tokens, 88);
    options_.model = "words";
    const LoadReport words = Good();
    EXPECT_FALSE(words.ids);
    EXPECT_EQ(words.input_tokens, 160);
    options_.model = "no-usage";
    const LoadReport counted = Good();
    EXPECT_EQ(counted.output_tokens, 88);
    EXPECT_EQ(counted.input_tokens, 0);
    options_.model = "m";
    options_.chat = true;
    const LoadReport chat = Good();
    EXPECT_EQ(chat.output_tokens, 88);
    EXPECT_EQ(chat.input_tokens, 160);
    EXPECT_GE(chat.ttft_ms.median, 49);  // the role alone is not a token
}

// Twelve requests at 40 per second, however long each takes.
TEST_F(Load, ARateIsKept) {
    options_.requests = 12;
    options_.clients = 0;
    options_.rate = 40;
    const LoadReport r = Good();
    EXPECT_EQ(r.completed, 12);
    EXPECT_GT(r.most_at_once, 1);
    EXPECT_LE(r.duration_s, 10);
}

TEST_F(Load, Failures) {
    options_.warmup = 0;
    options_.prompt = PromptKind::kIds;
    options_.model = "odd-fails";
    const LoadReport half = Good();
    EXPECT_EQ(half.completed, 4);
    EXPECT_EQ(half.failed, 4);
    EXPECT_NE(half.first_error.find("out of luck"), std::string::npos) << half.first_error;
    options_.requests = 2;
    options_.timeout_ms = 1000;
    for (const auto& [model, text] :
         {std::pair{"cut", "[DONE]"}, std::pair{"error", "a rank was lost"},
          std::pair{"text", "no tokens"}, std::pair{"silent", "slow"}}) {
        options_.model = model;
        const auto report = Run();
        ASSERT_FALSE(report.ok()) << model;
        EXPECT_NE(report.error().message.find(text), std::string::npos) << report.error().message;
    }
    options_.url = "127.0.0.1:1";
    EXPECT_EQ(static_cast<int>(Run().error().code), static_cast<int>(ErrorCode::kUsage));
}

// The program raises the soft limit of descriptors; the hard one ends the test with both numbers.
TEST_F(Load, ClientsRaiseTheLimitOfDescriptors) {
    const test::TempDir folder;
    for (const auto& [limit, status] : {std::pair("-Sn", 0), {"-n", 2}}) {
        const std::string command = fmt::format(
            "ulimit {} 90; exec '{}' bench serve --url {} --model m --clients 110 --requests 110 "
            "--output-len 2 --prompt ids > /dev/null 2> '{}'",
            limit, support::WeftProgram(), options_.url, folder / "err");
        const int ended = std::system(command.c_str());
        const std::string said = ReadTextFile(folder / "err").value();
        EXPECT_EQ(WEXITSTATUS(ended), status) << said;
        EXPECT_EQ(
            said.find("more than 26 requests at once, and this process may open 90 "
                      "descriptors. Raise the limit ('ulimit -Hn'), or use fewer --clients") !=
                std::string::npos,
            status != 0)
            << said;
    }
}

TEST_F(Load, TheCommand) {
    const Words words = {
        "bench",       "serve", "--url",        options_.url, "--model",         "m",
        "--clients",   "2",     "--requests",   "4",          "--key",           "secret",
        "--input-len", "16",    "--output-len", "3",          "--shared-prefix", "6"};
    const Ran ran = RunWeft(words + Words{"--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const json report = ran.Json();
    EXPECT_EQ(report["completed"], 4);
    EXPECT_EQ(report["total_output_tokens"], 12);
    EXPECT_TRUE(report["ttft_ms"].contains("p99"));
    const Ran text = RunWeft(words);
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_NE(text.out.find("TTFT"), std::string::npos);
    const Ran failed = RunWeft({"bench", "serve", "--url", options_.url, "--model", "cut",
                                "--requests", "2", "--output-len", "2"});
    EXPECT_EQ(failed.status, 1);
    EXPECT_EQ(RunWeft({"bench"}).status, 2);
}

TEST_F(Load, UsesTheListedModel) {
    const Words words = {"bench", "serve",        "--url", options_.url, "--requests",
                         "2",     "--output-len", "2",     "--json"};
    const Ran ran = RunWeft(words + Words{"--key", "secret"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.Json()["model"], "words");
    const Ran none = RunWeft(words);
    EXPECT_EQ(none.status, 2);
    EXPECT_NE((none.out + none.err).find("--model"), std::string::npos) << none.err;
    const Ran nobody = RunWeft({"bench", "serve", "--url", "http://127.0.0.1:1"});
    EXPECT_EQ(nobody.status, 1);
    EXPECT_NE(nobody.err.find("127.0.0.1:1/v1/models"), std::string::npos) << nobody.err;
}

TEST(LoadFigures, QuantilesAndLengths) {
    std::vector<LoadAnswer> answers(5);
    for (size_t i = 0; i < 4; ++i) {
        answers[i].ok = true;
        answers[i].start_s = static_cast<double>(i);
        answers[i].end_s = static_cast<double>(i) + 1.5;
        answers[i].first_s = 0.1 * static_cast<double>(i + 1);
        answers[i].gaps_s = {0.2, 0.4};
        answers[i].output_tokens = 3;
        answers[i].input_tokens = 10;
    }
    answers[4].start_s = 1;
    answers[4].end_s = 2;
    answers[4].error = "no";
    const LoadReport r = MakeReport(answers);
    EXPECT_EQ(r.completed, 4);
    EXPECT_EQ(r.failed, 1);
    EXPECT_EQ(r.most_at_once, 3);
    EXPECT_NEAR(r.duration_s, 4.5, 1e-9);
    EXPECT_NEAR(r.ttft_ms.mean, 250, 1e-6);
    EXPECT_NEAR(r.ttft_ms.median, 250, 1e-6);
    EXPECT_NEAR(r.ttft_ms.p95, 385, 1e-6);  // 100 + 300 * 0.95
    EXPECT_NEAR(r.itl_ms.mean, 300, 1e-6);
    EXPECT_NEAR(r.tpot_ms.mean, (1500.0 - 250) / 2, 1e-6);
    EXPECT_NEAR(r.request_rate, 4 / 4.5, 1e-9);

    LoadOptions options;
    options.requests = 20'000;
    options.sharegpt = true;
    double input = 0, output = 0;
    std::set<int64_t> different;
    for (const Lengths& one : MakeLengths(options)) {
        ASSERT_TRUE(one.input >= 4 && one.input <= 1024 && one.output >= 4 && one.output <= 1024);
        input += static_cast<double>(one.input) / 20'000;
        output += static_cast<double>(one.output) / 20'000;
        different.insert(one.input);
    }
    EXPECT_GT(different.size(), 500u);
    // The intended means, less the truncated tail.
    EXPECT_TRUE(input > 180 && input < 220) << input;
    EXPECT_TRUE(output > 170 && output < 205) << output;
}

TEST(LoadEvents, PiecesAndErrors) {
    const std::string stream =
        ": hello\r\ndata: {\"a\": 1}\r\n\r\nevent: x\ndata:b\n\ndata: [DONE]\n";
    for (size_t piece = 1; piece <= stream.size(); ++piece) {
        std::string seen;
        EventReader reader([&](std::string_view data) {
            seen += std::string(data) + "|";
            return Status();
        });
        for (size_t at = 0; at < stream.size(); at += piece) {
            ASSERT_TRUE(reader.Take(std::string_view(stream).substr(at, piece)).ok());
        }
        ASSERT_EQ(seen, "{\"a\": 1}|b|[DONE]|");
    }
    EventReader endless([](std::string_view) { return Status(); });
    const std::string part(1 << 20, 'x');
    Status taken;
    for (int i = 0; i < 6 && taken.ok(); ++i) taken = endless.Take(part);
    EXPECT_FALSE(taken.ok());
    for (const char* bad : {"", "3", "[]", "{", "{\"error\": \"x\"}"}) {
        EXPECT_FALSE(ParseChunk(bad, false).ok()) << bad;
    }
    for (const char* odd :
         {"{}", "{\"choices\": 3}", "{\"choices\": [1, null, {}]}",
          "{\"usage\": {\"prompt_tokens\": -1}}", "{\"choices\": [{\"delta\": 1}]}"}) {
        const auto chunk = ParseChunk(odd, true);
        ASSERT_TRUE(chunk.ok()) << odd;
        EXPECT_FALSE(chunk->is_piece);
        EXPECT_EQ(chunk->input_tokens, 0);
    }
}

}  // namespace
}  // namespace weft::load
