// Second turns of tools, as clients send them, through every template: a message that only calls
// has its content null, absent or empty; arguments are texts or objects; ids are anybody's; calls
// come several at once. All of them render, and to the same prompt.
#include "formats/chat/tool_form.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::formats {
namespace {

const std::string kFolder = support::TestData("/chat/");

// With "<s>" and "</s>", which templates write.
const Tokenizer& Words() {
    static const auto tokenizer = Tokenizer::Make(TinySpm({"a"})).value();
    return *tokenizer;
}

Chat ChatOf(const std::string& source) {
    auto chat = Chat::Make(source, Words());
    EXPECT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().message);
    return std::move(chat).value();
}

std::string Source(const std::string& name) {
    return ReadTextFile(kFolder + name + ".jinja").value();
}

std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
        if (entry.path().extension() == ".jinja") names.push_back(entry.path().stem().string());
    }
    std::ranges::sort(names);
    return names;
}

OrderedJson Tools() {
    const OrderedJson parameters{
        {"type", "object"},
        {"properties", {{"city", {{"type", "string"}, {"description", "Its name."}}}}}};
    return OrderedJson::array({{{"type", "function"},
                                {"function",
                                 {{"name", "get_weather"},
                                  {"description", "The weather."},
                                  {"parameters", parameters}}}}});
}

OrderedJson Call(const std::string& id, const OrderedJson& arguments) {
    return {{"id", id},
            {"type", "function"},
            {"function", {{"name", "get_weather"}, {"arguments", arguments}}}};
}

OrderedJson Result(const std::string& id, const std::string& words) {
    return {{"role", "tool"}, {"tool_call_id", id}, {"content", words}};
}

ChatInput Asked() {
    ChatInput input = OneQuestion("", "How is the weather?");
    input.tools = Tools();
    input.now_s = 1;
    return input;
}

class ToolTurns : public testing::TestWithParam<std::string> {
  protected:
    std::string Rendered(ChatInput input) const {
        FitToolTurns(FindToolForm(chat_, true), input.messages);
        const auto text = chat_.Render(input);
        EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message) << input.messages;
        return text.ok() ? text->bytes() : "";
    }
    bool shows_calls() const { return Shows("Paris"); }
    bool Shows(const std::string& words) const {
        ChatInput input = Asked();
        input.tools = nullptr;
        input.messages.push_back({{"role", "assistant"},
                                  {"content", ""},
                                  {"tool_calls", {Call("call00001", {{"city", "Paris"}})}}});
        input.messages.push_back(Result("call00001", "21.5 degrees"));
        return Rendered(input).find(words) != std::string::npos;
    }
    const Chat chat_ = ChatOf(Source(GetParam()));
};

TEST_P(ToolTurns, AnEmptyContentIsTheSameHoweverItIsWritten) {
    std::vector<std::string> texts;
    for (const OrderedJson& message : {OrderedJson{{"role", "assistant"}, {"content", ""}},
                                       OrderedJson{{"role", "assistant"}, {"content", nullptr}},
                                       OrderedJson{{"role", "assistant"}}}) {
        ChatInput input = Asked();
        input.messages.push_back(message);
        input.messages.back()["tool_calls"] =
            OrderedJson::array({Call("call_AbCdEf0123456789", {{"city", "Paris"}})});
        input.messages.push_back(Result("call_AbCdEf0123456789", "21.5 degrees"));
        input.messages.push_back({{"role", "assistant"}, {"content", "It is 21.5."}});
        input.messages.push_back({{"role", "user"}, {"content", "Thanks."}});
        texts.push_back(Rendered(input));
    }
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

// Where the template takes an empty text itself, that is what it gets.
TEST_P(ToolTurns, WhatRendersAlreadyIsLeftAlone) {
    ChatInput input = Asked();
    input.messages.push_back({{"role", "assistant"},
                              {"content", ""},
                              {"tool_calls", {Call("call00001", {{"city", "Paris"}})}}});
    input.messages.push_back(Result("call00001", "21.5 degrees"));
    const auto before = chat_.Render(input);
    if (FindToolForm(chat_, true).as_words) {
        // Told as words, since the template refuses such turns or leaves them out.
        EXPECT_TRUE(!before.ok() || before->view().find("21.5 degrees") == std::string::npos);
        const bool shows_any = Rendered(Asked()).find("the weather?") != std::string::npos;
        EXPECT_EQ(Rendered(input).find("21.5 degrees") != std::string::npos, shows_any);
        return;
    }
    ASSERT_TRUE(before.ok()) << before.error().message;
    EXPECT_EQ(Rendered(input), before->bytes());
}

TEST_P(ToolTurns, SeveralCallsAtOnce) {
    ChatInput input = Asked();
    input.messages.push_back(
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls",
          {Call("call_1", {{"city", "Paris"}}), Call("call_2", {{"city", "Rome"}})}}});
    input.messages.push_back(Result("call_1", "21.5 degrees"));
    input.messages.push_back(Result("call_2", "30 degrees"));
    const std::string text = Rendered(input);
    EXPECT_EQ(shows_calls(), text.find("Rome") != text.npos) << text;
    EXPECT_EQ(Shows("21.5 degrees"), text.find("30 degrees") != text.npos) << text;
    // Results that come in another order belong to the same calls.
    std::swap(input.messages[2], input.messages[3]);
    if (FindToolForm(chat_, true).one_call) {
        EXPECT_EQ(Rendered(input), text);
    }
}

// Without the list of tools in the second request, too.
TEST_P(ToolTurns, WithoutTools) {
    ChatInput input = Asked();
    input.tools = nullptr;
    input.messages.push_back({{"role", "assistant"},
                              {"content", nullptr},
                              {"tool_calls", {Call("x", {{"city", "Paris"}})}}});
    input.messages.push_back(Result("x", "21.5 degrees"));
    FitToolTurns(FindToolForm(chat_, false), input.messages);
    const auto text = chat_.Render(input);
    EXPECT_TRUE(text.ok()) << text.error().message;
}

// A list of calls that is empty or null is none.
TEST_P(ToolTurns, NoCalls) {
    ChatInput input = OneQuestion("", "Hello");
    input.messages.push_back({{"role", "assistant"}, {"content", "Hi."}});
    input.messages.push_back({{"role", "user"}, {"content", "Bye"}});
    const std::string text = Rendered(input);
    for (const OrderedJson& none : {OrderedJson::array(), OrderedJson(nullptr)}) {
        ChatInput with = input;
        with.messages[1]["tool_calls"] = none;
        EXPECT_EQ(Rendered(with), text);
    }
    input.messages[1]["content"] = nullptr;
    Rendered(input);
}

// A call without arguments, and one whose arguments are no object.
TEST_P(ToolTurns, ArgumentsOfAnyKind) {
    for (const OrderedJson& arguments :
         {OrderedJson(""), OrderedJson(nullptr), OrderedJson::object(), OrderedJson("{broken"),
          OrderedJson({1, 2}), OrderedJson(5)}) {
        ChatInput input = Asked();
        input.messages.push_back({{"role", "assistant"},
                                  {"content", nullptr},
                                  {"tool_calls", {Call("call_1", arguments)}}});
        input.messages.push_back(Result("call_1", "21.5 degrees"));
        Rendered(input);
    }
}

INSTANTIATE_TEST_SUITE_P(Templates, ToolTurns, testing::ValuesIn(Names()),
                         [](const auto& name) { return name.param; });

// As DeepSeek's first templates have it: calls only where the content is none, arguments as text.
constexpr const char* kNoneAndText =
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
    "{% for c in m.tool_calls %}{{ '<call>' + c.function.name + '\n' + c.function.arguments }}"
    "{% endfor %}{% elif m.content is not none %}{{ m.role + ': ' + m.content + '\n' }}{% endif %}"
    "{% endfor %}";

TEST(ToolForm, FollowsTheTemplate) {
    const ToolForm form = FindToolForm(ChatOf(kNoneAndText), true);
    EXPECT_TRUE(form.null_content);
    EXPECT_FALSE(form.takes_objects);
    EXPECT_FALSE(form.short_ids);
    for (const OrderedJson& content : {OrderedJson(""), OrderedJson(nullptr)}) {
        ChatInput input = OneQuestion("", "x");
        input.messages.push_back({{"role", "assistant"},
                                  {"content", content},
                                  {"tool_calls", {Call("1", {{"city", "Paris"}, {"n", {1, 2}}})}}});
        FitToolTurns(form, input.messages);
        EXPECT_EQ(ChatOf(kNoneAndText).Render(input)->bytes(),
                  "user: x\n<call>get_weather\n{\"city\": \"Paris\", \"n\": [1, 2]}");
    }
    const ToolForm mistral = FindToolForm(ChatOf(Source("mistral")), true);
    EXPECT_TRUE(mistral.short_ids);
    const ToolForm llama = FindToolForm(ChatOf(Source("llama3")), true);
    EXPECT_TRUE(llama.one_call);
    EXPECT_TRUE(FindToolForm(ChatOf(Source("harmony")), true).one_call) << "shows the first alone";
    EXPECT_FALSE(llama.short_ids);
    EXPECT_TRUE(FindToolForm(ChatOf(Source("gemma")), true).as_words);
    EXPECT_EQ(FindToolForm(ChatOf(Source("qwen")), true), (ToolForm{true, true}));
    EXPECT_FALSE(FindToolForm(ChatOf(Source("minimax")), true).takes_text);
}

TEST(ToolForm, IdsAreMappedTheSameEverywhere) {
    EXPECT_EQ(ShortCallId("aB3dE6gH9"), "aB3dE6gH9") << "one that fits";
    for (const char* id : {"call_abc123", "toolu_01A09q90qw90lq917835lq9", "x", "functions.f:0",
                           "aB3dE6gH-", "call00001x"}) {
        const std::string fitted = ShortCallId(id);
        EXPECT_EQ(fitted.size(), 9u) << id;
        EXPECT_TRUE(std::ranges::all_of(fitted, [](unsigned char c) { return std::isalnum(c); }));
        EXPECT_EQ(fitted, ShortCallId(id));
        EXPECT_EQ(fitted, ShortCallId(fitted)) << "again is the same";
    }
    EXPECT_NE(ShortCallId("call_1"), ShortCallId("call_2"));
    OrderedJson messages = {
        {{"role", "assistant"}, {"tool_calls", {Call("call_1", {{"a", 1}}), Call("", {{"a", 2}})}}},
        Result("call_1", "one"),
        {{"role", "tool"}, {"content", "two"}}};
    messages[0]["tool_calls"][1].erase("id");
    FitToolTurns({.short_ids = true}, messages);
    const OrderedJson& calls = messages[0]["tool_calls"];
    EXPECT_EQ(calls[0]["id"], messages[1]["tool_call_id"]);
    EXPECT_EQ(calls[1]["id"], messages[2]["tool_call_id"]) << "the one that is open";
    EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

}  // namespace
}  // namespace weft::formats
