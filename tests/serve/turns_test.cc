// Requests of Anthropic's Messages API and OpenAI's Responses API become messages for the chat
// template, and constraints are compiled within the caller's effort.
#include <gtest/gtest.h>

#include "serve/api/anthropic/messages.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/openai/chat.h"
#include "serve/api/openai/response_store.h"
#include "serve/api/openai/responses.h"
#include "support/temp_dir.h"
#include "support/tiny_engine.h"
#include "support/tiny_vocabulary.h"

namespace weft::serve {
namespace {

// Shows everything that templates use.
constexpr const char* kShowsAll =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}{% endfor %}";

class Turns : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        dir_ = std::make_unique<test::TempDir>();
        engine_ = support::StartTinyEngine(*dir_ / "m");
        words_ = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair()).value();
        served_.engine = engine_.get();
        served_.name = "m";
        served_.chat = chat::Chat::Make(kShowsAll, *words_).value();
        served_.forms = chat::FindForms(*served_.chat);
        served_.constraints = std::make_unique<Constraints>(engine_->tokenizer());
        served_.longest_piece_bytes = 1000;
    }
    static void TearDownTestSuite() {
        served_ = {};
        words_.reset();
        engine_.reset();
        dir_.reset();
    }

    using Plan = std::optional<ApiError> (*)(const Json&, const Served&, AnswerPlan&);
    // The prompt as text, or the error.
    static std::string Prompt(Plan make, Json body) {
        body["max_tokens"] = 1;
        AnswerPlan plan;
        if (const auto error = make(body, served_, plan)) return "error: " + error->message;
        return words_->Decode(plan.choices[0].request.prompt);
    }
    static std::string Messages(const char* messages) {
        return Prompt(PlanMessages, {{"messages", Json::parse(messages)}});
    }
    static std::string Responses(const char* items) {
        return Prompt(PlanResponse, {{"input", Json::parse(items)}});
    }

    static inline std::unique_ptr<test::TempDir> dir_;
    static inline std::unique_ptr<engine::Engine> engine_;
    static inline std::unique_ptr<tokenizer::Tokenizer> words_;
    static inline Served served_;
};

TEST_F(Turns, SystemMessagesAmongMessages) {
    const Json body{{"system", "S"}, {"messages", Json::parse(R"([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "system", "content": [{"type": "text", "text": "T",
            "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": "c"}, {"role": "system", "content": "U"}])")}};
    EXPECT_EQ(Prompt(PlanMessages, body), "<system>S<user>a<assistant>b<system>T<user>c<system>U");
    AnswerPlan counted;
    ASSERT_FALSE(CountMessageTokens(body, served_, counted));
    EXPECT_GT(Json::parse(counted.reply)["input_tokens"], 10);
    EXPECT_EQ(Messages(R"([{"role": "tool", "content": "a"}])"),
              "error: messages.0.role: Invalid value for 'messages.0.role': 'tool'. Supported "
              "values are: 'user', 'assistant', 'system'.");
}

TEST_F(Turns, ConsecutiveTurnsAreOne) {
    EXPECT_EQ(Messages(R"([{"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]}, {"role": "user",
         "content": ""}, {"role": "assistant", "content": "c"}, {"role": "assistant", "content":
         [{"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "1", "name": "f",
           "input": {}}]}, {"role": "assistant", "content": [{"type": "tool_use", "id": "2",
           "name": "g", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "r"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "s"},
         {"type": "text", "text": "d"}]}, {"role": "user", "content": "e"}])"),
              "<user>a\n\nb<assistant>c(t)[f {}][g {}]<tool>r<tool>s<user>d\n\ne");
    // A text does not move before the call that it follows.
    EXPECT_EQ(Messages(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content":
        [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
        {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])"),
              "<user>a<assistant>[f {}]<assistant>b<user>c");
}

TEST_F(Turns, ResultsThatAreErrors) {
    const auto result = [](const char* is_error) {
        const std::string text = Messages((R"([{"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f",
             "input": {}}]}, {"role": "user", "content": [{"type": "tool_result",
             "tool_use_id": "1", "content": "r", "is_error": )" +
                                           std::string(is_error) + "}]}]")
                                              .c_str());
        return text.substr(text.find("<tool>") + 1);
    };
    EXPECT_EQ(result("true"), "tool>Error: r");
    EXPECT_EQ(result("false"), "tool>r");
    EXPECT_EQ(result("null"), "tool>r");
}

TEST_F(Turns, ReasoningJoinsItsCall) {
    constexpr const char* kThought =
        R"({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "t"}]})";
    const std::string thought = kThought;
    const std::string begin = R"([{"role": "user", "content": "q"},
        {"role": "assistant", "content": "Let me look."}, )" +
                              thought;
    const std::string call =
        R"(, {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"})";
    const std::string result =
        R"(, {"type": "function_call_output", "call_id": "1", "output": "r"})";
    EXPECT_EQ(Responses((begin + call + result + "]").c_str()),
              "<user>q<assistant>Let me look.(t)[f {}]<tool>r");
    // The same for a reasoning between two calls.
    EXPECT_EQ(Responses((begin + call + ", " + thought + call + result + "]").c_str()),
              "<user>q<assistant>Let me look.(t\nt)[f {}][f {}]<tool>r");
    // A reasoning without an answer does not become part of the next turn.
    EXPECT_EQ(Responses((begin + R"(, {"role": "user", "content": "a"},
                  {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])")
                            .c_str()),
              "<user>q<assistant>Let me look.<user>a<assistant>b<user>c");
    EXPECT_EQ(Responses((R"([{"role": "user", "content": "q"}, )" + thought +
                         R"(, {"role": "assistant", "content": "b"},
                            {"role": "user", "content": "c"}])")
                            .c_str()),
              "<user>q<assistant>b(t)<user>c");
}

TEST_F(Turns, InstructionsAndDeveloperItems) {
    EXPECT_EQ(Prompt(PlanResponse, {{"instructions", "I"}, {"input", Json::parse(R"([
                  {"role": "developer", "content": [{"type": "input_text", "text": "D"}]},
                  {"role": "user", "content": "q"}])")}}),
              "<system>I<system>D<user>q");
}

TEST_F(Turns, OutputFormats) {
    const Json format = Json::parse(R"({"type": "json_schema", "schema": {"type": "boolean"}})");
    const Json wrong = Json::parse(R"({"type": "json_schema", "schema": {"type": "none"}})");
    const auto constrained = [](Json more) {
        Json body{{"messages", Json::parse(R"([{"role": "user", "content": "q"}])")},
                  {"max_tokens", 1}};
        body.update(more);
        AnswerPlan plan;
        if (const auto error = PlanMessages(body, served_, plan)) return error->param;
        return std::string(plan.choices[0].request.matcher ? "yes" : "no");
    };
    EXPECT_EQ(constrained({{"output_format", nullptr}}), "no");
    EXPECT_EQ(constrained({{"output_format", format}}), "yes");
    EXPECT_EQ(constrained({{"output_config", {{"format", format}}}}), "yes");
    EXPECT_EQ(constrained({{"output_format", wrong}}), "output_format");
    EXPECT_EQ(constrained({{"output_format", wrong}, {"output_config", {{"format", format}}}}),
              "yes");
}

// Every path compiles a format only within the effort of its lane.
TEST_F(Turns, RawPromptsDeferTheirFormat) {
    for (const bool raw : {true, false}) {
        const Json body{{"model", "m"},
                        {"prompt", "a"},
                        {"raw", raw},
                        {"format", {{"type", "string"}, {"maxLength", raw ? 5 : 6}}}};
        AnswerPlan plan;
        plan.effort = CompileEffort::kNone;
        EXPECT_TRUE(PlanOllamaGenerate(body, served_, plan));
        EXPECT_TRUE(plan.deferred) << raw;
        AnswerPlan again;
        EXPECT_FALSE(PlanOllamaGenerate(body, served_, again));
        EXPECT_FALSE(again.deferred);
    }
}

// Messages and items that have no part in the conversation: an error, whichever API converts them.
TEST_F(Turns, OfNothingAreRefused) {
    const auto nothing = [](Plan make, const char* member, const Json& list) {
        for (const bool tools : {false, true}) {
            Json body{{"model", "m"}, {member, list}, {"max_tokens", 1}};
            if (tools)
                body["tools"] = Json::array(
                    {{{"type", "function"}, {"name", "f"}, {"function", {{"name", "f"}}}}});
            AnswerPlan plan;
            const auto error = make(body, served_, plan);
            EXPECT_TRUE(error && error->status == 400) << list;
            EXPECT_TRUE(error && error->message.find("no message") != std::string::npos)
                << list << (error ? error->message : "");
        }
    };
    for (const char* content :
         {"null", "[]", R"([{"type": "tool_removal", "tool": {"name": "f"}}])",
          R"([{"type": "tool_addition", "tool": {"name": "f"}}])"}) {
        const Json system{{"role", "system"}, {"content", Json::parse(content)}};
        Json passing = system;
        passing["clear_at"] = "next_user_message";
        for (const Json& list : {Json::array({system}), Json::array({passing, system, passing})}) {
            nothing(PlanMessages, "messages", list);
            AnswerPlan plan;
            EXPECT_TRUE(CountMessageTokens({{"messages", list}}, served_, plan)) << list;
        }
    }
    for (const char* content : {"null", "\"\"", "[]"}) {
        const Json says{{"role", "assistant"}, {"content", Json::parse(content)}};
        nothing(PlanChat, "messages", Json::array({says}));
        nothing(PlanOllamaChat, "messages", Json::array({says}));
    }
    for (const char* type :
         {"web_search_call", "image_generation_call", "mcp_list_tools", "mcp_approval_request",
          "mcp_approval_response", "context_compaction", "ghost_snapshot", "mcp_call",
          "code_interpreter_call", "file_search_call", "reasoning", "additional_tools",
          "configuration_update"}) {
        const Json item{{"type", type}};
        nothing(PlanResponse, "input", Json::array({item}));
        nothing(PlanResponse, "input", Json::array({item, item}));
    }
}

// A stored response of two items, which counts how often it is read.
class CountedResponse final : public ResponseStore {
  public:
    bool on() const override { return true; }
    bool uses_files() const override { return true; }
    void Put(const std::string&, const std::string&, Stored) override {}
    std::shared_ptr<const Stored> Get(const std::string&, const std::string& id) const override {
        ++reads;
        const Json message = Json::parse(R"({"role": "user", "content": "a"})");
        return std::make_shared<const Stored>(
            Stored{{{"id", id}, {"output", Json::array()}},
                   std::make_shared<const Json>(Json::array({message, message})),
                   held_bytes});
    }
    bool Remove(const std::string&, const std::string&) override { return false; }
    int64_t held_bytes = 1000;
    mutable int reads = 0;
};

TEST_F(Turns, AResponseIsReadOnceForAllReferencesToIt) {
    const auto store = std::make_shared<CountedResponse>();
    const auto plan = [&](int count, bool same) {
        Json body{{"input", Json::array()}};
        for (int i = 0; i < count; ++i) {
            const std::string of = same ? "r" : "r" + std::to_string(i);
            body["input"].push_back({{"id", "msg_" + of + "_" + std::to_string(i % 2)}});
        }
        AnswerPlan made;
        made.responses = store;
        return PlanResponse(body, served_, made);
    };
    EXPECT_FALSE(plan(100, true));
    EXPECT_EQ(store->reads, 1);
    store->held_bytes = 40 << 20;
    const auto error = plan(100, false);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->status, 400);
    EXPECT_EQ(store->reads, 1 + 4) << "the limit counts the responses that are read";
}

}  // namespace
}  // namespace weft::serve
