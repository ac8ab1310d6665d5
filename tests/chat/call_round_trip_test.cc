// Calls that the templates of tests/data/chat render, parsed back: every argument keeps its bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>

#include "base/file.h"
#include "chat/template/template_capabilities.h"
#include "chat/tool_types.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

constexpr std::string_view kQuestion = "Write the file now.";

std::vector<std::string> TemplateNames() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(support::TestData("/chat"))) {
        const auto& path = entry.path();
        if (path.extension() == ".jinja" && path.stem() != "raw_rules") {
            names.push_back(path.stem());
        }
    }
    std::sort(names.begin(), names.end());
    return names;
}

OrderedJson WriteTool() {
    const OrderedJson properties{{"path", {{"type", "string"}, {"description", "Where."}}},
                                 {"text", {{"type", "string"}, {"description", "What."}}},
                                 {"mode", {{"type", "integer"}, {"description", "Bits."}}},
                                 {"more", {{"type", "object"}, {"description", "Others."}}}};
    return OrderedJson::array(
        {{{"type", "function"},
          {"function",
           {{"name", "write_file"},
            {"description", "Writes."},
            {"parameters", {{"type", "object"}, {"properties", properties}}}}}}});
}

OrderedJson Message(const std::vector<OrderedJson>& arguments) {
    OrderedJson message{{"role", "assistant"}, {"content", ""}};
    for (size_t i = 0; i < arguments.size(); ++i) {
        message["tool_calls"].push_back(
            {{"id", "call_" + std::to_string(i)},
             {"type", "function"},
             {"function", {{"name", "write_file"}, {"arguments", arguments[i]}}}});
    }
    return message;
}

// A template with the form and the family that Weft finds for it.
struct Loaded {
    explicit Loaded(const std::string& name)
        : words(tokenizer::Tokenizer::Make(tokenizer::TinySpm()).value()),
          chat(Chat::Make(ReadTextFile(support::TestData("/chat/" + name + ".jinja")).value(),
                          *words)
                   .value()),
          form(FindCapabilities(chat, true)),
          family(CallFamily(FamilyOf(chat), form)) {}

    // The answer with the calls, behind the question.
    std::string Answer(const std::vector<OrderedJson>& arguments) const {
        ChatInput input = OneQuestion("", kQuestion);
        input.messages.push_back(Message(arguments));
        input.tools = WriteTool();
        input.add_generation_prompt = false;
        input.now_s = 1;
        FitConversation(form, input);
        const auto text = chat.Render(input);
        EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
        if (!text.ok()) return "";
        const size_t question = text->view().rfind(kQuestion);
        EXPECT_NE(question, std::string_view::npos) << text->view();
        return std::string(text->view().substr(question + kQuestion.size()));
    }

    std::shared_ptr<tokenizer::Tokenizer> words;
    Chat chat;
    TemplateCapabilities form;
    ToolCallFormat family;
};

// The calls of an answer that arrives in pieces of random sizes.
std::vector<ToolCall> Calls(ToolCallFormat family, std::string_view text, bool parts,
                            size_t most_bytes, std::mt19937& random) {
    AnswerParser parser(family, false, parts, std::make_shared<const ToolTypes>(WriteTool()));
    std::vector<ToolCall> calls;
    std::string written;
    const auto take = [&](AnswerDelta delta) {
        for (const CallPart& part : delta.call_parts) {
            if (part.begins) {
                calls.push_back({part.name, {}});
                written.clear();
            }
            written += part.arguments;
            if (part.ends) calls.back().arguments = OrderedJson::parse(written, nullptr, false);
        }
        calls.insert(calls.end(), delta.tool_calls.begin(), delta.tool_calls.end());
    };
    while (!text.empty()) {
        const size_t size = std::min<size_t>(text.size(), 1 + random() % most_bytes);
        take(parser.Push(text.substr(0, size)));
        text.remove_prefix(size);
    }
    take(parser.Finish());
    return calls;
}

const char* const kTexts[] = {"line\n",
                              "\nline",
                              "\n",
                              "\n\nline\n\n",
                              " a ",
                              "\ta\n\t",
                              "a\r\nb\r\n",
                              "it's",
                              "'it' isn't \"it\"",
                              "C:\\new\\table",
                              "def f(x, y='1'):\n    return {'a': \"b\"}[x]  # (c)\n",
                              "<b>&amp;</b>\n",
                              "\xE6\x97\xA5\xE6\x9C\xAC\xE3\x80\x80\n",
                              "",
                              "12",
                              "null",
                              "```json\n{}\n```\n"};

class CallRoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(CallRoundTrip, ArgumentsKeepTheirBytes) {
    const Loaded loaded(GetParam());
    std::mt19937 random(7);
    for (const char* text : kTexts) {
        const OrderedJson first{{"mode", 420}, {"path", "a b/c"}, {"text", text}};
        const OrderedJson second{{"mode", -1}, {"path", text}, {"text", "end\n"}};
        for (const std::vector<OrderedJson>& given : {std::vector{first}, {first, second}}) {
            if (loaded.form.one_call && given.size() > 1) continue;
            const std::string answer = loaded.Answer(given);
            for (const size_t most : {size_t{1}, size_t{3}, size_t{20}, size_t{1000}}) {
                const auto calls = Calls(loaded.family, answer, most % 2 == 0, most, random);
                ASSERT_EQ(calls.size(), given.size())
                    << FamilyName(loaded.family) << ": " << answer;
                for (size_t i = 0; i < given.size(); ++i) {
                    EXPECT_EQ(calls[i].name, "write_file") << answer;
                    EXPECT_EQ(calls[i].arguments, given[i]) << answer;
                }
            }
        }
    }
}

// Names that JSON schemas have, in arguments and in their objects.
TEST_P(CallRoundTrip, NamesKeepTheirBytes) {
    const Loaded loaded(GetParam());
    std::mt19937 random(7);
    const char* const names[] = {"user-id",
                                 "a.b",
                                 "$top",
                                 "@odata.type",
                                 "dc:title",
                                 "gr\xC3\xB6\xC3\x9F"
                                 "e",
                                 "\xE5\x9F\x8E\xE5\xB8\x82"};
    for (const char* name : names) {
        const OrderedJson given{{name, "x"}, {"more", {{name, "y"}, {"09:00", {{name, {1}}}}}}};
        const std::string answer = loaded.Answer({given});
        const auto calls = Calls(loaded.family, answer, false, 20, random);
        ASSERT_EQ(calls.size(), 1u) << FamilyName(loaded.family) << ": " << answer;
        EXPECT_EQ(nlohmann::json(calls[0].arguments), nlohmann::json(given)) << answer;
    }
}

INSTANTIATE_TEST_SUITE_P(Templates, CallRoundTrip, testing::ValuesIn(TemplateNames()),
                         [](const auto& one) { return one.param; });

// Families whose calls a template shows, found by what it renders.
TEST(CallFamilies, AreFoundByTheRenderedText) {
    using enum ToolCallFormat;
    const std::pair<const char*, ToolCallFormat> families[] = {
        {"hy3", kHunyuan},         {"gigachat", kGigaChat}, {"apriel", kApriel},
        {"minicpm5", kMiniCpm5},   {"glm4", kGlm4},         {"functiongemma", kFunctionGemma},
        {"interns1", kInternS1},   {"xlam", kJsonList},     {"hunyuan", kHunyuanA13b},
        {"mimo", kQwenCoderTight}, {"muse", kAtem},         {"coder", kQwenCoder},
        {"commandr", kCommandR},   {"seed", kSeed},         {"lfm2", kLfm2},
        {"qwen", kQwen},           {"glm", kGlm},           {"chatml", kPlain}};
    for (const auto& [name, family] : families) {
        EXPECT_EQ(FamilyName(FamilyOf(Loaded(name).chat)), FamilyName(family)) << name;
    }
}

}  // namespace
}  // namespace weft::chat
