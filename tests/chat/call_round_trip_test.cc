// Calls that the templates of tests/data/chat render, parsed back: every argument keeps its bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>

#include "base/file.h"
#include "base/utf8.h"
#include "chat/call_tags.h"
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
                            size_t most_bytes, std::mt19937& random, bool ended = false) {
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
    take(parser.Finish(ended));
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

// Longer than what is streamed of a value between tags.
std::string LongText(size_t lines, std::string_view end, std::string_view word = "gr\xC3\xB6n") {
    std::string text = "import os\n";
    for (size_t i = 0; i < lines; ++i) {
        text += "    print(f\"{x:>3}\\t<b>\", '";
        text.append(word).append("', {'a': [1, \"2\"]})\n");
    }
    return text.append(end);
}

class CallRoundTrip : public testing::TestWithParam<std::string> {};

TEST_P(CallRoundTrip, ArgumentsKeepTheirBytes) {
    const Loaded loaded(GetParam());
    std::mt19937 random(7);
    std::vector<std::string> texts(std::begin(kTexts), std::end(kTexts));
    for (const char* end : {"", "\n", "end", "\n\n"}) texts.push_back(LongText(6, end));
    texts.push_back("\n" + LongText(4, "\"'"));
    for (const std::string& text : texts) {
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

std::string DropBrokenUtf8(std::string_view text) {
    std::string kept;
    for (size_t at = 0; at < text.size();) {
        const size_t bytes = CodePointLength(text, at);
        if (bytes > 0) kept += text.substr(at, bytes);
        at += std::max<size_t>(1, bytes);
    }
    return kept;
}

// Of the families whose arguments are between tags.
class TaggedCalls : public testing::TestWithParam<std::string> {
  protected:
    const Loaded loaded_{GetParam()};
    std::mt19937 random_{7};
};

// An agent's user sees a file while it is written.
TEST_P(TaggedCalls, LongValuesArriveInParts) {
    const std::string text = LongText(40, "end");
    const std::string answer = loaded_.Answer({{{"path", "a/b"}, {"text", text}, {"mode", 1}}});
    AnswerParser parser(loaded_.family, false, true,
                        std::make_shared<const ToolTypes>(WriteTool()));
    std::string arguments;
    size_t pushed = 0, silent = 0, longest = 0, ends = 0;
    const size_t begin = answer.find("import os"), end = answer.find("end", begin);
    const auto take = [&](const AnswerDelta& delta) {
        for (const CallPart& part : delta.call_parts) {
            arguments += part.arguments;
            silent = part.arguments.empty() ? silent : 0;
            ends += part.ends ? 1 : 0;
        }
        EXPECT_TRUE(delta.tool_calls.empty());
    };
    for (const char c : answer) {
        take(parser.Push(std::string(1, c)));
        ++silent;
        if (++pushed > begin + TagStream::kLeastBytes && pushed < end) {
            longest = std::max(longest, silent);
        }
    }
    take(parser.Finish());
    EXPECT_EQ(ends, 1u);
    EXPECT_LT(longest, 40u);  // bytes that may begin a tag
    EXPECT_EQ(OrderedJson::parse(arguments)["text"], text);
}

// Texts that are cut, doubled or broken give the same complete calls, whole and in parts.
TEST_P(TaggedCalls, DamagedCallsAreTheSameInParts) {
    const std::string answer =
        loaded_.Answer({{{"path", "a"}, {"text", LongText(3, "x", "x")}, {"mode", 3}}});
    std::vector<size_t> tags;  // where a piece of an answer may begin
    for (size_t at = answer.find('<'); at != answer.npos; at = answer.find('<', at + 1)) {
        tags.push_back(at);
    }
    const auto any = [&](size_t most) { return static_cast<size_t>(random_() % most); };
    size_t whole_calls = 0;
    for (int i = 0; i < 1000; ++i) {
        std::string text = answer;
        for (size_t change = 0; change <= any(3); ++change) {
            const size_t from = tags[any(tags.size())];
            const std::string piece = answer.substr(from, 1 + any(i % 2 == 0 ? 40 : 400));
            const size_t at = any(text.size()), bytes = 1 + any(60);
            switch (any(4)) {
                case 0: text.erase(at, bytes); break;
                case 1: text.insert(at, piece); break;
                case 2: text.erase(std::min(text.size(), from), bytes); break;
                default: text.resize(at);
            }
            text = "<" + DropBrokenUtf8(text);
        }
        const bool ended = i % 3 == 0;
        const auto whole = Calls(loaded_.family, text, false, 1000, random_, ended);
        auto parts = Calls(loaded_.family, text, true, 1 + any(60), random_, ended);
        std::erase_if(parts, [](const ToolCall& call) { return call.arguments.is_null(); });
        whole_calls += whole.size();
        ASSERT_EQ(parts.size(), whole.size()) << text;
        for (size_t k = 0; k < whole.size(); ++k) {
            EXPECT_EQ(parts[k].name, whole[k].name) << text;
            EXPECT_EQ(nlohmann::json(parts[k].arguments), nlohmann::json(whole[k].arguments))
                << text;
        }
    }
    EXPECT_GT(whole_calls, 50u);
}

INSTANTIATE_TEST_SUITE_P(Templates, TaggedCalls,
                         testing::Values("coder", "glm", "mimo", "seed", "minimax", "dsml"),
                         [](const auto& one) { return one.param; });

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
