// Answers from the engine's tokens: calls streamed in pieces, a limit of one call, and the reason
// of the end. A grammar makes a tiny model write three calls.
#include "serve/api/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "serve/api/anthropic/messages.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/chat.h"
#include "serve/api/openai/responses.h"
#include "serve/api/openai/responses_dialect.h"
#include "support/kept_exchange.h"
#include "support/scripted_gguf.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::serve {
namespace {

constexpr const char* kCalls =
    "root ::= call call call\n"
    "call ::= \"<tool_call>\\n{\\\"name\\\": \\\"add\\\", \\\"arguments\\\": {\\\"a\\\": \\\"\" "
    "[a-f] [a-f] [a-f] [a-f] \"\\\"}}\\n</tool_call>\\n\"\n";

class Calls : public testing::Test {
  protected:
    void SetUp() override {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.layers = 2;
        support::WriteTinyGguf(dir_ / "m", file);
        engine::Job job;
        job.model = dir_ / "m";
        job.threads = 1;
        job.ctx = 1024;
        job.self_test = false;
        engine_ = engine::Engine::Start({}, job, {4, true}).value();
        served_.name = "m";
        served_.engine = engine_.get();
        constraints_ = std::make_unique<Constraints>(engine_->tokenizer());
    }

    // Runs the engine until the answer is complete.
    std::shared_ptr<KeptExchange> Ask(bool stream, bool one_call) {
        AnswerPlan plan;
        ChoicePlan choice;
        choice.request.prompt = {97, 98};
        auto matcher = constraints_->Compile({"grammar", kCalls});
        EXPECT_TRUE(matcher.ok()) << (matcher.ok() ? "" : matcher.error().message);
        choice.request.matcher = std::move(*matcher);
        plan.choices.push_back(std::move(choice));
        plan.dialect = MakeMessagesDialect(served_, 2);
        plan.family = chat::ToolCallFormat::kQwen;
        plan.stream = stream;
        plan.one_call = one_call;
        auto exchange = std::make_shared<KeptExchange>();
        Answer::Start(*engine_, exchange, std::move(plan), {}, {});
        engine_->Drain();
        EXPECT_TRUE(engine_->Run().ok());
        EXPECT_TRUE(exchange->over_);
        EXPECT_EQ(exchange->status_, 200);
        EXPECT_EQ(exchange->note_.prompt_tokens, 2);
        return exchange;
    }

    static size_t Count(const std::string& text, const std::string& part) {
        size_t count = 0;
        for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
        return count;
    }

    test::TempDir dir_;
    std::unique_ptr<engine::Engine> engine_;
    Served served_;
    std::unique_ptr<Constraints> constraints_;
};

TEST_F(Calls, CompleteAnswerHasAllCalls) {
    const auto answer = Ask(false, false);
    EXPECT_EQ(Json::parse(answer->text_)["content"].size(), 3u) << answer->text_;
}

TEST_F(Calls, OneCallLimitKeepsTheFirst) {
    const auto answer = Ask(false, true);
    const Json json = Json::parse(answer->text_);
    ASSERT_EQ(json["content"].size(), 1u) << answer->text_;
    EXPECT_EQ(json["stop_reason"], "tool_use");
    EXPECT_EQ(json["content"][0]["input"]["a"].get<std::string>().size(), 4u);
    // One token per byte: a call has about 70. The current step may generate a few more.
    EXPECT_LT(answer->note_.generated_tokens, 90);
}

TEST_F(Calls, StreamsPiecesOfCalls) {
    const auto answer = Ask(true, false);
    EXPECT_EQ(Count(answer->text_, "\"tool_use\",\"id\""), 3u) << answer->text_;
    // {"a": "abcd"} is 13 bytes, each a token.
    EXPECT_GT(Count(answer->text_, "input_json_delta"), 3u * 8);
}

// What a stream sends while it has nothing to say.
TEST_F(Calls, SilenceOfARunningAnswerIsFilled) {
    AnswerPlan plan;
    plan.choices.resize(1);
    plan.choices[0].request.prompt = {97, 98};
    plan.choices[0].request.max_tokens = 1;
    plan.dialect = MakeMessagesDialect(served_, 2);
    plan.stream = true;
    auto exchange = std::make_shared<KeptExchange>();
    Answer::Start(*engine_, exchange, std::move(plan), {}, {});
    const std::string ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    EXPECT_EQ(exchange->Fill(), ping);
    EXPECT_EQ(exchange->Fill(), ping);
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    EXPECT_TRUE(exchange->over_);
    EXPECT_EQ(exchange->Fill(), "");
}

TEST_F(Calls, OneCallLimitInAStream) {
    const auto answer = Ask(true, true);
    EXPECT_EQ(Count(answer->text_, "\"tool_use\",\"id\""), 1u) << answer->text_;
    EXPECT_EQ(Count(answer->text_, "\"type\":\"content_block_stop\""), 1u);
    EXPECT_NE(answer->text_.find("\"stop_reason\":\"tool_use\""), std::string::npos);
    EXPECT_LT(answer->note_.generated_tokens, 90);
}

// The thought and its end marker are all tokens; the grammar ends the answer without an end token.
TEST_F(Calls, CountsTheTokensOfReasoning) {
    AnswerPlan plan;
    ChoicePlan choice;
    choice.request.prompt = {97, 98};
    choice.request.matcher =
        constraints_->Compile({"grammar", "root ::= \"abcd</think>\""}).value();
    plan.choices.push_back(std::move(choice));
    plan.dialect = MakeMessagesDialect(served_, 2);
    plan.family = chat::ToolCallFormat::kQwen;
    plan.begins_in_reasoning = true;
    Usage usage;
    auto exchange = std::make_shared<KeptExchange>();
    Answer::Start(*engine_, exchange, std::move(plan),
                  [&](const AnswerRecord& record) { usage = record.usage; }, {});
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    EXPECT_GT(usage.generated_tokens, 4);
    EXPECT_EQ(usage.reasoning_tokens, usage.generated_tokens) << exchange->text_;
}

// An answer that takes long to format is not formatted by the engine's thread, which would delay
// others' steps.
class LogprobAnswers : public Calls {
  protected:
    void Ask(int64_t tokens, bool is_long, bool stream = false) {
        AnswerPlan plan;
        ChoicePlan choice;
        choice.request.prompt = {97, 98};
        choice.request.max_tokens = tokens;
        choice.request.ignore_eos = true;
        choice.request.logprobs = 20;
        plan.choices.push_back(std::move(choice));
        plan.dialect = MakeMessagesDialect(served_, 2);
        plan.stream = stream;
        if (stream) {
            ResponseForm form{.head = {{"id", "resp_x"}}, .logprobs = true};
            plan.dialect = MakeResponsesDialect(served_, std::move(form));
        }
        auto exchange = std::make_shared<KeptExchange>();
        int observed = 0;
        std::vector<std::function<void()>> later;
        Answer::Start(
            *engine_, exchange, std::move(plan),
            [&](const AnswerRecord&) {
                ++observed;
                EXPECT_FALSE(exchange->over_) << "the client's next request may be here already";
            },
            [&](size_t, std::function<void()> work) { later.push_back(std::move(work)); });
        engine_->Drain();
        EXPECT_TRUE(engine_->Run().ok());
        EXPECT_EQ(later.size(), is_long ? 1u : 0u);
        EXPECT_EQ(exchange->over_, !is_long);
        EXPECT_EQ(observed, is_long ? 0 : 1);
        for (const auto& work : later) work();
        EXPECT_TRUE(exchange->over_);
        EXPECT_EQ(exchange->status_, 200);
        EXPECT_EQ(exchange->note_.generated_tokens, tokens);
        EXPECT_EQ(observed, 1);
    }
};

TEST_F(LogprobAnswers, ShortAnswersAreFormattedByTheEngine) {
    Ask(4, false);
}

TEST_F(LogprobAnswers, LongAnswersAreFormattedByAnotherThread) {
    Ask(200, true);
}

TEST_F(LogprobAnswers, ShortEndsOfStreamsAreFormattedByTheEngine) {
    Ask(4, false, true);
}

TEST_F(LogprobAnswers, LongEndsOfStreamsAreFormattedByAnotherThread) {
    Ask(200, true, true);
}

// A stream's later parts wait until a long part is formatted.
TEST_F(Calls, LongEchoesOfStreamsAreFormattedByAnotherThread) {
    AnswerPlan plan;
    ChoicePlan choice;
    choice.request.prompt = std::vector<int32_t>(900, 97);
    choice.request.max_tokens = 20;
    choice.request.ignore_eos = true;
    choice.request.logprobs = choice.request.prompt_logprobs = 5;
    choice.echo = std::string(900, 'a');
    choice.echo_logprobs = true;
    plan.choices = {choice, choice};
    plan.dialect = MakeMessagesDialect(served_, 900);
    plan.stream = true;
    auto exchange = std::make_shared<KeptExchange>();
    std::vector<std::function<void()>> later;
    Answer::Start(*engine_, exchange, std::move(plan), {},
                  [&](size_t, std::function<void()> work) { later.push_back(std::move(work)); });
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    EXPECT_FALSE(exchange->over_);
    EXPECT_EQ(exchange->text_.find("text_delta"), std::string::npos);
    ASSERT_EQ(later.size(), 1u) << "one thread at a time";
    later[0]();
    EXPECT_TRUE(exchange->over_);
    EXPECT_NE(exchange->text_.find(std::string(900, 'a')), std::string::npos);
    EXPECT_TRUE(exchange->text_.ends_with("{\"type\":\"message_stop\"}\n\n"));
    EXPECT_GT(Count(exchange->text_, "text_delta"), 10u);
    EXPECT_GT(exchange->held_bytes_, 500'000u) << "log-probabilities count before they leave";
}

// Log-probabilities of text that the parser holds back count before it lets the text go.
TEST_F(Calls, LogprobsOfAHeldCallAreLimited) {
    constexpr const char* kLongCall =
        "root ::= \"<tool_call>\\n{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {\\\"a\\\": \\\"\" "
        "[a-f]{850}";
    std::vector<std::shared_ptr<KeptExchange>> asked;
    std::vector<std::function<void()>> later;
    AnswerRecord records[2];
    for (const bool stream : {false, true}) {
        AnswerPlan plan;
        ChoicePlan choice;
        choice.request.prompt = {97, 98};
        choice.request.max_tokens = 900;
        choice.request.logprobs = 20;
        choice.request.ignore_eos = true;
        choice.request.matcher = constraints_->Compile({"grammar", kLongCall}).value();
        plan.choices = {choice, choice};
        plan.dialect = MakeMessagesDialect(served_, 2);
        plan.family = chat::ToolCallFormat::kQwen;
        plan.stream = stream;
        plan.whole_calls = true;
        asked.push_back(std::make_shared<KeptExchange>());
        asked.back()->most_bytes_ = 400'000;
        Answer::Start(
            *engine_, asked.back(), std::move(plan),
            [&records, stream](const AnswerRecord& one) { records[stream ? 1 : 0] = one; },
            [&](size_t, std::function<void()> work) { later.push_back(std::move(work)); });
    }
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    for (const auto& work : later) work();
    for (const size_t stream : {0, 1}) {
        EXPECT_TRUE(asked[stream]->over_);
        EXPECT_EQ(records[stream].error, "no room") << asked[stream]->text_;
        EXPECT_LT(records[stream].usage.generated_tokens, 300);
    }
}

// The end that an API gives an answer of two calls.
struct CutRow {
    std::optional<ApiError> (*plan)(const Json&, const Served&, AnswerPlan&);
    Json body;
    const char* limit;       // member with the limit of tokens
    const char *cut, *ends;  // what a cut and a whole answer contain
};

std::vector<CutRow> CutRows() {
    const Json messages = Json::parse(R"([{"role": "user", "content": "a"}])");
    const Json function{{"name", "f"}, {"parameters", {{"type", "object"}}}};
    const Json tools = Json::array({{{"type", "function"}, {"function", function}}});
    const Json bare = Json::array({{{"name", "f"}, {"input_schema", {{"type", "object"}}}}});
    const Json flat = Json::array({{{"type", "function"}, {"name", "f"}}});
    return {{PlanChat,
             {{"messages", messages}, {"tools", tools}},
             "max_tokens",
             R"("finish_reason":"length")",
             R"("finish_reason":"tool_calls")"},
            {PlanMessages,
             {{"messages", messages}, {"tools", bare}},
             "max_tokens",
             R"("stop_reason":"max_tokens")",
             R"("stop_reason":"tool_use")"},
            {PlanResponse,
             {{"input", "a"}, {"tools", flat}},
             "max_output_tokens",
             R"("incomplete_details":{"reason":"max_output_tokens"})",
             R"("completed_at":)"},
            {PlanOllamaChat,
             {{"model", "m"}, {"messages", messages}, {"tools", tools}},
             "num_predict",
             R"("done_reason":"length")",
             R"("done_reason":"stop")"}};
}

// A model that generates a script, token by token.
class Scripted : public testing::Test {
  protected:
    void Serve(const std::vector<support::ScriptPiece>& script) {
        constexpr const char* kTemplate = "{% for m in messages %}{{ m.content }}{% endfor %}";
        support::WriteScriptedGguf(dir_ / "m", kTemplate, script);
        engine::Job job;
        job.model = dir_ / "m";
        job.threads = 1;
        job.ctx = 1024;
        job.self_test = false;
        engine_ = engine::Engine::Start({}, job, {8, true}).value();
        served_.name = "m";
        served_.engine = engine_.get();
        served_.longest_piece_bytes = 64;
        served_.chat = chat::Chat::Make(kTemplate, engine_->tokenizer()).value();
        served_.forms = chat::FindForms(*served_.chat);
        served_.family = chat::ToolCallFormat::kQwen;
        served_.constraints = std::make_unique<Constraints>(engine_->tokenizer());
    }

    test::TempDir dir_;
    std::unique_ptr<engine::Engine> engine_;
    Served served_;
};

// Letters of markers are text, and marker tokens are none, in a stream as in a whole answer.
TEST_F(Scripted, AnswerQuotesMarkersInLetters) {
    Serve({{"<think>", true},
           {"A </thi"},
           {"nk> may"},
           {" come"},
           {"</think>", true},
           {"Use <"},
           {"think>"},
           {", <|im_"},
           {"end|> and <tool_call"},
           {"> as"},
           {"<|vision_start|>", true},
           {" tags."},
           {"<tool_call>", true},
           {"{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_"},
           {"call> x\"}}"},
           {"</tool_call>", true}});
    Json body = Json::parse(R"({"messages": [{"role": "user", "content": "a"}], "temperature": 0,
        "logprobs": true, "tools": [{"type": "function", "function": {"name": "f"}}]})");
    std::vector<std::shared_ptr<KeptExchange>> asked;
    for (const bool stream : {false, true}) {
        body["stream"] = stream;
        AnswerPlan plan;
        const auto error = PlanChat(body, served_, plan);
        ASSERT_FALSE(error) << error->message;
        asked.push_back(std::make_shared<KeptExchange>());
        Answer::Start(*engine_, asked.back(), std::move(plan), {}, {});
    }
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    std::vector<Json> parts = {Json::parse(asked[0]->text_)["choices"][0]["message"]};
    std::istringstream lines(asked[1]->text_);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("data: {")) continue;
        parts.push_back(Json::parse(line.substr(6))["choices"][0]["delta"]);
    }
    std::string content[2], reasoning[2], arguments[2];
    for (size_t i = 0; i < parts.size(); ++i) {
        const size_t stream = i > 0 ? 1 : 0;
        content[stream] += Fields(parts[i]).Text("content", "");
        reasoning[stream] += Fields(parts[i]).Text("reasoning_content", "");
        for (const Json& call : parts[i].value("tool_calls", Json::array())) {
            arguments[stream] += call["function"]["arguments"].get<std::string>();
        }
    }
    for (const size_t stream : {0, 1}) {
        EXPECT_EQ(content[stream], "Use <think>, <|im_end|> and <tool_call> as tags.");
        EXPECT_EQ(reasoning[stream], "A </think> may come");
        EXPECT_EQ(Json::parse(arguments[stream]), (Json{{"a", "</tool_call> x"}}));
    }
}

// The answer's JSON: the whole answer, or the last object in a stream that has `member`.
Json LastWith(const std::string& text, const char* member) {
    Json last = Json::parse(text, nullptr, false);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("data: {")) continue;
        Json json = Json::parse(line.substr(6));
        if (json.contains(member)) last = std::move(json);
    }
    return last;
}

// Log-probabilities reveal nothing of a reasoning that the request hides, and a message of
// /v1/responses has only those of its own tokens, in a stream as in a complete answer.
TEST_F(Scripted, TokensOfHiddenTextHaveNoLogprobs) {
    Serve({{"<think>", true},
           {"secret"},
           {"</think>", true},
           {"Yes"},
           {" so"},
           {"<tool_call>", true},
           {"{\"name\": \"f\", \"arguments\": {}}"},
           {"</tool_call>", true}});
    Json ask = Json::parse(R"({"input": "a", "temperature": 0,
        "include": ["message.output_text.logprobs"],
        "tools": [{"type": "function", "name": "f"}]})");
    Json chat = Json::parse(R"({"messages": [{"role": "user", "content": "a"}], "temperature": 0,
        "logprobs": true, "include_reasoning": false})");
    std::vector<std::shared_ptr<KeptExchange>> asked;
    for (const auto& [plan_of, body] :
         {std::pair(&PlanResponse, &ask), std::pair(&PlanChat, &chat)}) {
        for (const bool stream : {false, true}) {
            (*body)["stream"] = stream;
            AnswerPlan plan;
            const auto error = plan_of(*body, served_, plan);
            ASSERT_FALSE(error) << error->message;
            asked.push_back(std::make_shared<KeptExchange>());
            Answer::Start(*engine_, asked.back(), std::move(plan), {}, {});
        }
    }
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    for (const size_t i : {0, 1}) {
        const Json last = LastWith(asked[i]->text_, "response");
        std::string said;
        for (const Json& item : (i == 0 ? last : last["response"])["output"]) {
            if (item["type"] != "message") continue;
            for (const Json& token : item["content"][0]["logprobs"]) {
                said += token["token"].get<std::string>();
            }
        }
        EXPECT_EQ(said, "Yes so") << asked[i]->text_;
    }
    for (const size_t i : {2, 3}) {
        EXPECT_NE(asked[i]->text_.find("\"logprob\""), std::string::npos);
        EXPECT_EQ(asked[i]->text_.find("secret"), std::string::npos) << asked[i]->text_;
    }
}

// Letters of the marker that ends a thought do not end its budget.
TEST_F(Scripted, BudgetHoldsBehindMarkersInLetters) {
    Serve({{"<|channel|>", true},
           {"analysis"},
           {"<|message|>", true},
           {"An <|en"},
           {"d|> tag"},
           {" one"},
           {" two"},
           {" three"},
           {"<|end|>", true},
           {"<|return|>", true}});
    served_.family = chat::ToolCallFormat::kHarmony;
    AnswerPlan plan;
    const auto error = PlanChat(Json::parse(R"({"messages": [{"role": "user", "content": "a"}],
        "temperature": 0, "thinking_token_budget": 3})"),
                                served_, plan);
    ASSERT_FALSE(error) << error->message;
    auto exchange = std::make_shared<KeptExchange>();
    Answer::Start(*engine_, exchange, std::move(plan), {}, {});
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    EXPECT_NE(exchange->text_.find("\"An <|end|> tag one\""), std::string::npos) << exchange->text_;
}

// Only tokens are markers of a head: the reasoning may quote the answer's head as plain text.
TEST_F(Scripted, ConstraintWaitsBehindHeadsInLetters) {
    Serve({{"<|channel|>", true},
           {"<|message|>", true},
           {"<|end|>", true},
           {"<|start|>", true},
           {"<|return|>", true}});
    served_.family = chat::ToolCallFormat::kHarmony;
    AnswerPlan plan;
    const auto error = PlanChat(Json::parse(R"({"messages": [{"role": "user", "content": "a"}],
        "response_format": {"type": "json_object"}})"),
                                served_, plan);
    ASSERT_FALSE(error) << error->message;
    engine::ReasoningTrack track(plan.choices[0].request.reasoning);
    const auto take = [&](std::string_view text, bool tokens) {
        for (const int32_t id : engine_->tokenizer().Encode(text, {.parse_special = tokens})) {
            track.Take(id, engine_->tokenizer().Piece(id), false);
        }
    };
    take("<|channel|>analysis<|message|>", true);
    take("It ends: <|end|><|start|>assistant<|channel|>final<|message|>", false);
    EXPECT_TRUE(track.inside());
    take("<|end|><|start|>assistant<|channel|>commentary<|message|>", true);
    EXPECT_TRUE(track.inside());
    take("<|end|><|start|>assistant<|channel|>final <|message|>", true);
    EXPECT_FALSE(track.inside());
}

// A client's grammar that names the markers of the reasoning describes the reasoning, too.
TEST_F(Scripted, GrammarMayDescribeTheReasoning) {
    Serve({{"ok"}, {"</think>"}, {"yes"}, {" no"}});
    AnswerPlan plan;
    const auto error =
        PlanChat(Json::parse(R"({"messages": [{"role": "user", "content": "a<think>"}],
        "temperature": 0, "grammar": "root ::= \"ok</think>yes\""})"),
                 served_, plan);
    ASSERT_FALSE(error) << error->message;
    auto exchange = std::make_shared<KeptExchange>();
    Answer::Start(*engine_, exchange, std::move(plan), {}, {});
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    const Json message = Json::parse(exchange->text_)["choices"][0]["message"];
    EXPECT_EQ(message["content"], "yes") << exchange->text_;
    EXPECT_EQ(message["reasoning_content"], "ok") << exchange->text_;
}

// gpt-oss ends a call with an end token, which has no text for the parser. A call without arguments
// is whole behind it, and cut off at a limit.
TEST_F(Scripted, CallWithoutArgumentsEndsWithTheTurn) {
    Serve({{"<|channel|>", true},
           {"commentary to=functions.now "},
           {"<|constrain|>", true},
           {"json"},
           {"<|message|>", true},
           {"<|call|>", true}});
    Json body = Json::parse(R"({"messages": [{"role": "user", "content": "a"}], "temperature": 0,
        "tools": [{"type": "function", "function": {"name": "now"}}]})");
    std::vector<std::shared_ptr<KeptExchange>> asked;
    for (const int tokens : {5, 16}) {
        for (const bool stream : {false, true}) {
            body["stream"] = stream;
            body["max_tokens"] = tokens;
            AnswerPlan plan;
            const auto error = PlanChat(body, served_, plan);
            ASSERT_FALSE(error) << error->message;
            plan.family = chat::ToolCallFormat::kHarmony;
            asked.push_back(std::make_shared<KeptExchange>());
            Answer::Start(*engine_, asked.back(), std::move(plan), {}, {});
        }
    }
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    for (size_t i = 0; i < asked.size(); ++i) {
        const std::string& text = asked[i]->text_;
        const bool called = i >= 2;
        EXPECT_EQ(text.find(R"("name":"now")") != text.npos, called) << text;
        EXPECT_EQ(text.find(R"("arguments":"{}")") != text.npos, called) << text;
        EXPECT_EQ(text.find("commentary") == text.npos, called) << text;
        const char* finish = called ? R"("finish_reason":"tool_calls")" : R"("length")";
        EXPECT_NE(text.find(finish), text.npos) << text;
    }
}

// The call that max_tokens cuts is the model's own, not one quoted in its reasoning.
TEST_F(Scripted, CutCallIsNotOneOfTheThought) {
    Serve({{"Like <tool_call>\n{\"name\": \"g\", \"arguments\": {\"z\": 1}}"},
           {"</think>"},
           {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"one"},
           {" two"},
           {" three"}});
    AnswerPlan plan;
    const auto error =
        PlanChat(Json::parse(R"({"messages": [{"role": "user", "content": "a<think>"}],
        "temperature": 0, "max_tokens": 4, "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}]})"),
                 served_, plan);
    ASSERT_FALSE(error) << error->message;
    auto exchange = std::make_shared<KeptExchange>();
    Answer::Start(*engine_, exchange, std::move(plan), {}, {});
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    ASSERT_EQ(exchange->status_, 200) << exchange->text_;
    const Json message = Json::parse(exchange->text_)["choices"][0]["message"];
    ASSERT_TRUE(message.contains("tool_calls")) << exchange->text_;
    EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "f") << exchange->text_;
}

// A model that makes two calls.
class CutAnswer : public Scripted {
  protected:
    void SetUp() override { Serve(script_); }
    std::shared_ptr<KeptExchange> Ask(const CutRow& row, int64_t tokens, bool stream) {
        Json body = row.body;
        Json& options = row.plan == PlanOllamaChat ? body["options"] : body;
        options["temperature"] = 0;
        options[row.limit] = tokens;
        body["stream"] = stream;
        AnswerPlan plan;
        const auto error = row.plan(body, served_, plan);
        EXPECT_FALSE(error) << error->message;
        auto exchange = std::make_shared<KeptExchange>();
        Answer::Start(*engine_, exchange, std::move(plan), {}, {});
        return exchange;
    }

    const std::vector<support::ScriptPiece> script_ = {{"<tool_call>\n"},
                                                       {"{\"name\": \"f\", "},
                                                       {"\"arguments\": {\"a\": \""},
                                                       {"one"},
                                                       {"\"}}\n"},
                                                       {"</tool_call>\n"},
                                                       {"<tool_call>\n{\"name\""},
                                                       {": \"f\", \"arguments\": "},
                                                       {"{\"a\": \"two"},
                                                       {" and"},
                                                       {"\"}}"},
                                                       {"\n</tool_call>"}};
};

// An answer that max_tokens cuts is never called whole, wherever the limit is.
TEST_F(CutAnswer, OfTwoCallsIsCutOffInEveryDialect) {
    struct Asked {
        const CutRow* row;
        int64_t tokens;
        std::shared_ptr<KeptExchange> exchange;
    };
    const std::vector<CutRow> rows = CutRows();
    std::vector<Asked> asked;
    const auto all = std::ssize(script_);
    for (const CutRow& row : rows) {
        for (int64_t i = 0; i < 2 * (all + 1); ++i) {
            const int64_t tokens = i / 2 + 1;
            asked.push_back({&row, tokens, Ask(row, tokens, i % 2 == 0)});
        }
    }
    engine_->Drain();
    EXPECT_TRUE(engine_->Run().ok());
    for (const Asked& one : asked) {
        const std::string& text = one.exchange->text_;
        const bool cut = one.tokens <= all;  // the last token ends the turn
        const auto has = [&](const char* part) { return text.find(part) != text.npos; };
        EXPECT_EQ(has(one.row->cut), cut) << one.tokens << text;
        EXPECT_EQ(has(one.row->ends), !cut) << one.tokens << text;
    }
}

}  // namespace
}  // namespace weft::serve
