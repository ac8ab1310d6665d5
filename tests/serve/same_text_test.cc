// Serving and training render conversations alike: for any conversation and template, the text that
// training learns is the server's prompt.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/file.h"
#include "serve/api/constraint.h"
#include "serve/api/openai/chat.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/tiny_engine.h"
#include "support/tiny_vocabulary.h"
#include "train/data/encoder.h"

namespace weft::serve {
namespace {

class SameText : public testing::TestWithParam<std::string> {
  protected:
    static void SetUpTestSuite() {
        dir_ = std::make_unique<test::TempDir>();
        engine_ = support::StartTinyEngine(*dir_ / "m");
    }
    static void TearDownTestSuite() {
        engine_.reset();
        dir_.reset();
    }

    // Spellings of a conversation's parts used by clients and data sets.
    Json Content(const std::string& text) {
        switch (Draw(4)) {
            case 0: return Json::array({{{"type", "text"}, {"text", text}}});
            case 1:
                return Json::array({{{"type", "text"}, {"text", text.substr(0, 3)}},
                                    {{"type", "text"}, {"text", text.substr(3)}}});
            default: return text;
        }
    }
    Json Call(int number) {
        const Json arguments{{"city", "Ulm \"" + std::to_string(number) + "\""}, {"days", number}};
        Json function{{"name", "weather"}, {"arguments", arguments}};
        if (Draw(2) == 0) function["arguments"] = arguments.dump();
        Json call{{"id", "call_" + std::to_string(number)}, {"function", function}};
        if (Draw(2) == 0) call["type"] = "function";
        return call;
    }
    Json Answer(int number) {
        Json message{{"role", "assistant"},
                     {"content", Content("Answer " + std::to_string(number))}};
        if (Draw(3) == 0) message["reasoning_content"] = "Thought.";
        if (Draw(3) == 0) message["tool_calls"] = nullptr;
        return message;
    }
    Json Conversation() {
        Json messages = Json::array();
        for (size_t i = Draw(3); i > 0; --i) {
            messages.push_back({{"role", Draw(3) == 0 ? "developer" : "system"},
                                {"content", Content("Be kind " + std::to_string(i))}});
        }
        if (Draw(8) == 0) messages.push_back(Answer(0));
        const int rounds = 1 + static_cast<int>(Draw(3));
        for (int round = 0; round < rounds; ++round) {
            messages.push_back({{"role", "user"}, {"content", Content("Question?")}});
            if (Draw(2) == 0) {
                const int calls = 1 + static_cast<int>(Draw(2));
                Json message{{"role", "assistant"}};
                if (const size_t how = Draw(4); how == 0) {
                    message["content"] = nullptr;
                } else if (how == 1) {
                    message["content"] = "";
                } else if (how == 2) {
                    message["content"] = Content("I look.");
                }
                for (int i = 0; i < calls; ++i)
                    message["tool_calls"].push_back(Call(10 * round + i));
                messages.push_back(message);
                for (int i = 0; i < calls; ++i) {
                    messages.push_back({{"role", "tool"},
                                        {"tool_call_id", "call_" + std::to_string(10 * round + i)},
                                        {"content", Content("Result")}});
                }
            }
            messages.push_back(Answer(round));
        }
        return messages;
    }
    size_t Draw(size_t below) { return random_() % below; }

    std::mt19937 random_{7};
    static inline std::unique_ptr<test::TempDir> dir_;
    static inline std::unique_ptr<engine::Engine> engine_;
};

const Json kSameTools =
    Json::array({{{"type", "function"},
                  {"function",
                   {{"name", "weather"},
                    {"description", "The weather."},
                    {"parameters",
                     {{"type", "object"},
                      {"properties",
                       {{"city", {{"type", "string"}, {"description", "Its name."}}},
                        {"days", {{"type", "integer"}, {"description", "How many."}}}}}}}}}}});

TEST_P(SameText, InServingAndTraining) {
    Served served;
    served.engine = engine_.get();
    const std::string source =
        ReadTextFile(support::TestData("/chat/" + GetParam() + ".jinja")).value();
    // The tiny model lacks "<s>" and "</s>", which templates write.
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinySpm()).value();
    served.chat = chat::Chat::Make(source, *words).value();
    served.forms = chat::FindForms(*served.chat);
    served.family = chat::FamilyOf(*served.chat);
    served.constraints = std::make_unique<Constraints>(engine_->tokenizer());
    served.longest_piece_bytes = 1000;  // the context does not matter here
    const auto encoder = train::Encoder::Make(*words, &*served.chat, 1).value();
    int same = 0;
    for (int i = 0; i < 60; ++i) {
        Json body{{"messages", Conversation()}, {"add_generation_prompt", false}};
        if (Draw(2) == 0) body["tools"] = kSameTools;
        const auto record = train::ParseRecord(body.dump());
        ASSERT_TRUE(record.ok());
        const auto learned = encoder.Render(std::get<train::ChatRecord>(*record));
        Fields fields(body);
        auto conversation = ReadConversation(fields);
        ASSERT_FALSE(fields.error()) << fields.error()->message << body;
        conversation.input.now_s = 1;  // the date that training shows
        ChatPrompt prompt;
        const auto refused = MakePrompt(served, conversation, prompt);
        ASSERT_EQ(learned.ok(), !refused) << body << (refused ? refused->message : "")
                                          << (learned.ok() ? "" : learned.error().message);
        if (!learned.ok()) {  // the template rejects it
            EXPECT_EQ(learned.error().message.find("'+' of"), std::string::npos)
                << learned.error().message;
            continue;
        }
        EXPECT_EQ(learned->bytes(), prompt.text) << body;
        ++same;
    }
    EXPECT_GE(same, 10);
}

INSTANTIATE_TEST_SUITE_P(Templates, SameText, testing::ValuesIn([] {
                             std::vector<std::string> names;
                             const std::string folder = support::TestData("/chat");
                             for (const auto& each : std::filesystem::directory_iterator(folder)) {
                                 const std::string name = each.path().stem();
                                 // raw_rules shows no messages, so Chat rejects it.
                                 if (each.path().extension() == ".jinja" && name != "raw_rules") {
                                     names.push_back(name);
                                 }
                             }
                             std::ranges::sort(names);
                             return names;
                         }()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace weft::serve
