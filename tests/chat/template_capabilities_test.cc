// Second turns with tools, as clients send them, through every template: null, absent or empty
// content beside calls; arguments as text or objects; arbitrary ids; several calls at once. All
// render to the same prompt.
#include "chat/template/template_capabilities.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/file.h"
#include "chat/conversation.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

const std::string kToolFormFolder = support::TestData("/chat/");

// Has "<s>" and "</s>", which templates write.
const tokenizer::Tokenizer& Words() {
    static const auto tokenizer = tokenizer::Tokenizer::Make(tokenizer::TinySpm({"a"})).value();
    return *tokenizer;
}

Chat ChatOf(const std::string& source) {
    auto chat = Chat::Make(source, Words());
    EXPECT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().message);
    return std::move(chat).value();
}

std::string Source(const std::string& name) {
    return ReadTextFile(kToolFormFolder + name + ".jinja").value();
}

std::vector<std::string> ToolFormNames() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(kToolFormFolder)) {
        const std::string name = entry.path().stem();
        // raw_rules shows no messages, so Chat rejects it.
        if (entry.path().extension() == ".jinja" && name != "raw_rules") names.push_back(name);
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

OrderedJson CallOf(const std::string& id, const OrderedJson& arguments) {
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

// A conversation with `rounds` rounds of `calls` calls and their results.
struct Turns {
    const char* name;
    int rounds, calls;
    const char* text;  // text beside the calls
    bool goes_on;      // an answer and another question follow
};
constexpr Turns kTurns[] = {{"one call", 1, 1, "", false},
                            {"and on", 1, 1, "", true},
                            {"two rounds", 2, 1, "", false},
                            {"two rounds and on", 2, 1, "", true},
                            {"two calls", 1, 2, "", false},
                            {"two calls and on", 1, 2, "", true},
                            {"beside a text", 1, 1, "Well", false},
                            {"beside a text and on", 1, 1, "Well", true},
                            {"two beside a text", 2, 2, "Well", true}};

std::string City(int number) {
    return "Paris" + std::to_string(number);
}
std::string Degrees(int number) {
    return std::to_string(number) + "1.5 degrees";
}

ChatInput Conversation(const Turns& turns) {
    ChatInput input = Asked();
    int number = 0;
    for (int round = 0; round < turns.rounds; ++round) {
        OrderedJson message{{"role", "assistant"}, {"content", turns.text}};
        std::vector<OrderedJson> results;
        for (int i = 0; i < turns.calls; ++i, ++number) {
            const std::string id = "call_" + std::to_string(number);
            message["tool_calls"].push_back(CallOf(id, {{"city", City(number)}}));
            results.push_back(Result(id, Degrees(number)));
        }
        input.messages.push_back(std::move(message));
        for (OrderedJson& result : results) input.messages.push_back(std::move(result));
    }
    if (turns.goes_on) {
        input.messages.push_back({{"role", "assistant"}, {"content", "It is fine."}});
        input.messages.push_back({{"role", "user"}, {"content", "Thanks."}});
    }
    return input;
}

// Cities and temperatures in order of their occurrence in a text.
std::vector<std::string> Places(const std::string& text, const Turns& turns) {
    std::vector<std::pair<size_t, std::string>> found;
    for (int i = 0; i < turns.rounds * turns.calls; ++i) {
        for (const std::string& words : {City(i), Degrees(i)}) {
            for (size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) {
                found.emplace_back(at, words);
            }
        }
    }
    std::ranges::sort(found);
    std::vector<std::string> places;
    for (auto& [at, words] : found) places.push_back(std::move(words));
    return places;
}

std::vector<std::string> InOrder(const Turns& turns, bool one_call) {
    std::vector<std::string> places;
    const int group = one_call ? 1 : turns.calls;
    for (int first = 0; first < turns.rounds * turns.calls; first += group) {
        for (int i = first; i < first + group; ++i) places.push_back(City(i));
        for (int i = first; i < first + group; ++i) places.push_back(Degrees(i));
    }
    return places;
}

class ToolTurns : public testing::TestWithParam<std::string> {
  protected:
    std::string Rendered(ChatInput input) const {
        FitConversation(FindCapabilities(chat_, true), input);
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
                                  {"tool_calls", {CallOf("call00001", {{"city", "Paris"}})}}});
        input.messages.push_back(Result("call00001", "21.5 degrees"));
        return Rendered(input).find(words) != std::string::npos;
    }
    const Chat chat_ = ChatOf(Source(GetParam()));
};

TEST_P(ToolTurns, EmptyContentsRenderAlike) {
    std::vector<std::string> texts;
    for (const OrderedJson& message : {OrderedJson{{"role", "assistant"}, {"content", ""}},
                                       OrderedJson{{"role", "assistant"}, {"content", nullptr}},
                                       OrderedJson{{"role", "assistant"}}}) {
        ChatInput input = Asked();
        input.messages.push_back(message);
        input.messages.back()["tool_calls"] =
            OrderedJson::array({CallOf("call_AbCdEf0123456789", {{"city", "Paris"}})});
        input.messages.push_back(Result("call_AbCdEf0123456789", "21.5 degrees"));
        input.messages.push_back({{"role", "assistant"}, {"content", "It is 21.5."}});
        input.messages.push_back({{"role", "user"}, {"content", "Thanks."}});
        texts.push_back(Rendered(input));
    }
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

// A template that accepts an empty content gets it unchanged.
TEST_P(ToolTurns, AcceptedFormsAreUnchanged) {
    ChatInput input = Asked();
    input.messages.push_back({{"role", "assistant"},
                              {"content", ""},
                              {"tool_calls", {CallOf("call00001", {{"city", "Paris"}})}}});
    input.messages.push_back(Result("call00001", "21.5 degrees"));
    const auto before = chat_.Render(input);
    const TemplateCapabilities form = FindCapabilities(chat_, true);
    if (form.calls_as_words || form.results_as_words) {
        // Plain text, since the template rejects such turns or omits them.
        const auto shows = [&](const char* words) {
            return before.ok() && before->view().find(words) != std::string::npos;
        };
        EXPECT_TRUE(!form.calls_as_words || !shows("Paris"));
        EXPECT_TRUE(!form.results_as_words || !shows("21.5 degrees"));
        const bool shows_any = Rendered(Asked()).find("the weather?") != std::string::npos;
        EXPECT_EQ(Rendered(input).find("21.5 degrees") != std::string::npos, shows_any);
        return;
    }
    ASSERT_TRUE(before.ok()) << before.error().message;
    if (form.named_ids) {
        // Except the ids, which are Kimi's own.
        const std::string text = Rendered(input);
        const std::string id = "functions.get_weather:0";
        EXPECT_NE(text.find(id), text.rfind(id)) << text;
        return;
    }
    FitToolTurns(form, input.messages);
    if (form.function_texts || form.metadata_calls) {
        // Except the members for calls, which no client sends.
        EXPECT_EQ(before->view().find("Paris"), std::string::npos);
        EXPECT_NE(chat_.Render(input)->view().find("Paris"), std::string::npos);
        return;
    }
    EXPECT_EQ(chat_.Render(input)->bytes(), before->bytes());
}

// The functions and the system message reach the model with any template.
TEST_P(ToolTurns, FunctionsAndSystemAreShown) {
    for (const bool system : {false, true}) {
        ChatInput input = OneQuestion(system ? "Be brief!" : "", "How is the weather?");
        input.tools = Tools();
        input.now_s = 1;
        const std::string text = Rendered(input);
        EXPECT_NE(text.find("get_weather"), text.npos) << text;
        EXPECT_NE(text.find("How is the weather?"), text.npos) << text;
        EXPECT_EQ(text.find("Be brief!") != text.npos, system) << text;
        input.tools = nullptr;
        FitConversation(FindCapabilities(chat_, false), input);
        const auto plain = chat_.Render(input);
        ASSERT_TRUE(plain.ok()) << plain.error().message;
        EXPECT_EQ(plain->view().find("Be brief!") != std::string_view::npos, system);
        EXPECT_EQ(plain->view().find("get_weather"), std::string_view::npos);
    }
}

// Each word is the text of one message: s system, u user, a assistant, c a call, r its result.
ChatInput MessagesOf(const std::vector<std::string>& texts) {
    ChatInput input;
    input.now_s = 1;
    for (const std::string& text : texts) {
        const char* const role = text[0] == 's'   ? "system"
                                 : text[0] == 'u' ? "user"
                                 : text[0] == 'r' ? "tool"
                                                  : "assistant";
        OrderedJson message{{"role", role}, {"content", text[0] == 'c' ? "" : text}};
        if (text[0] == 'c') message["tool_calls"] = {CallOf("call_1", {{"city", text}})};
        if (text[0] == 'r') message["tool_call_id"] = "call_1";
        input.messages.push_back(std::move(message));
    }
    return input;
}

// Clients send several system messages, also in mid-conversation: no message is lost or rejected.
TEST_P(ToolTurns, EverySystemMessageIsShown) {
    for (const std::vector<std::string>& texts : std::vector<std::vector<std::string>>{
             {"sys1", "sys2", "user1"},
             {"sys1", "sys2", "sys3", "user1", "answer1", "user2"},
             {"sys1", "user1", "answer1", "sys2", "user2"},
             {"sys1", "sys2", "user1", "answer1", "sys3", "sys4", "user2"},
             {"user1", "answer1", "sys1", "user2"},
             {"sys1", "user1", "sys2"},
             {"user1", "sys1", "user2"},
             {"sys1", "user1", "call1", "result1", "sys2"},
             {"sys1", "user1", "call1", "result1", "sys2", "user2"}}) {
        for (const bool tools : {false, true}) {
            ChatInput input = MessagesOf(texts);
            if (tools) input.tools = Tools();
            FitConversation(FindCapabilities(chat_, tools), input);
            const auto text = chat_.Render(input);
            ASSERT_TRUE(text.ok()) << OrderedJson(texts) << text.error().message;
            for (const std::string& words : texts) {
                EXPECT_NE(text->view().find(words), std::string_view::npos)
                    << words << " of " << OrderedJson(texts) << ":\n"
                    << text->view();
            }
        }
    }
}

// Reasoning before calls, with and without text beside them.
TEST_P(ToolTurns, ReasoningBeforeCalls) {
    for (const char* words : {"", "I look."}) {
        ChatInput input = Asked();
        input.messages.push_back({{"role", "assistant"},
                                  {"content", words},
                                  {"reasoning_content", "Which city?"},
                                  {"tool_calls", {CallOf("call_1", {{"city", "Paris"}})}}});
        input.messages.push_back(Result("call_1", "21.5 degrees"));
        EXPECT_EQ(Shows("Paris"), Rendered(input).find("Paris") != std::string::npos);
    }
}

TEST_P(ToolTurns, SeveralCallsAtOnce) {
    ChatInput input = Asked();
    input.messages.push_back(
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls",
          {CallOf("call_1", {{"city", "Paris"}}), CallOf("call_2", {{"city", "Rome"}})}}});
    input.messages.push_back(Result("call_1", "21.5 degrees"));
    input.messages.push_back(Result("call_2", "30 degrees"));
    const std::string text = Rendered(input);
    EXPECT_EQ(shows_calls(), text.find("Rome") != text.npos) << text;
    EXPECT_EQ(Shows("21.5 degrees"), text.find("30 degrees") != text.npos) << text;
    // Results in another order still belong to the same calls.
    std::swap(input.messages[2], input.messages[3]);
    EXPECT_EQ(Rendered(input), text);
}

// Every template shows each call and result once and in order, in the second and later turns, with
// and without the list of tools.
TEST_P(ToolTurns, CallsAndResultsAreShown) {
    for (const bool with_tools : {true, false}) {
        const TemplateCapabilities form = FindCapabilities(chat_, with_tools);
        for (const Turns& turns : kTurns) {
            ChatInput input = Conversation(turns);
            if (!with_tools) input.tools = nullptr;
            FitConversation(form, input);
            const auto text = chat_.Render(input);
            ASSERT_TRUE(text.ok()) << turns.name << text.error().message;
            EXPECT_EQ(Places(text->bytes(), turns), InOrder(turns, form.one_call))
                << turns.name << (with_tools ? " with tools\n" : "\n") << text->bytes();
            EXPECT_EQ(text->view().find("'city': '"), std::string::npos) << "as Python prints it";
        }
    }
}

// The same if the second request has no list of tools.
TEST_P(ToolTurns, WithoutTools) {
    ChatInput input = Asked();
    input.tools = nullptr;
    input.messages.push_back({{"role", "assistant"},
                              {"content", nullptr},
                              {"tool_calls", {CallOf("x", {{"city", "Paris"}})}}});
    input.messages.push_back(Result("x", "21.5 degrees"));
    FitConversation(FindCapabilities(chat_, false), input);
    const auto text = chat_.Render(input);
    EXPECT_TRUE(text.ok()) << text.error().message;
}

// An empty or null list of calls counts as absent.
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

// A call without arguments, and one whose arguments are not an object.
TEST_P(ToolTurns, ArgumentsOfAnyKind) {
    for (const OrderedJson& arguments :
         {OrderedJson(""), OrderedJson(nullptr), OrderedJson::object(), OrderedJson("{broken"),
          OrderedJson({1, 2}), OrderedJson(5)}) {
        ChatInput input = Asked();
        input.messages.push_back({{"role", "assistant"},
                                  {"content", nullptr},
                                  {"tool_calls", {CallOf("call_1", arguments)}}});
        input.messages.push_back(Result("call_1", "21.5 degrees"));
        Rendered(input);
    }
}

INSTANTIATE_TEST_SUITE_P(Templates, ToolTurns, testing::ValuesIn(ToolFormNames()),
                         [](const auto& name) { return name.param; });

// As in DeepSeek's first templates: calls only if the content is none, arguments as text.
constexpr const char* kNoneAndText =
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
    "{% for c in m.tool_calls %}{{ '<call>' + c.function.name + '\n' + c.function.arguments }}"
    "{% endfor %}{% elif m.content is not none %}{{ m.role + ': ' + m.content + '\n' }}{% endif %}"
    "{% endfor %}";

TEST(TemplateCapabilities, FollowsTheTemplate) {
    const TemplateCapabilities form = FindCapabilities(ChatOf(kNoneAndText), true);
    EXPECT_TRUE(form.null_content);
    EXPECT_FALSE(form.takes_objects);
    EXPECT_FALSE(form.short_ids);
    for (const OrderedJson& content : {OrderedJson(""), OrderedJson(nullptr)}) {
        ChatInput input = OneQuestion("", "x");
        input.messages.push_back(
            {{"role", "assistant"},
             {"content", content},
             {"tool_calls", {CallOf("1", {{"city", "Paris"}, {"n", {1, 2}}})}}});
        FitToolTurns(form, input.messages);
        EXPECT_EQ(ChatOf(kNoneAndText).Render(input)->bytes(),
                  "user: x\n<call>get_weather\n{\"city\": \"Paris\", \"n\": [1, 2]}");
    }
    const TemplateCapabilities mistral = FindCapabilities(ChatOf(Source("mistral")), true);
    EXPECT_TRUE(mistral.short_ids);
    const TemplateCapabilities llama = FindCapabilities(ChatOf(Source("llama3")), true);
    EXPECT_TRUE(llama.one_call);
    EXPECT_TRUE(FindCapabilities(ChatOf(Source("harmony")), true).one_call)
        << "shows the first alone";
    EXPECT_FALSE(llama.short_ids);
    const TemplateCapabilities gemma = FindCapabilities(ChatOf(Source("gemma")), true);
    EXPECT_TRUE(gemma.calls_as_words && gemma.results_as_words);
    const TemplateCapabilities chatml = FindCapabilities(ChatOf(Source("chatml")), true);
    EXPECT_TRUE(chatml.calls_as_words && !chatml.results_as_words) << "it has any role";
    EXPECT_EQ(FindCapabilities(ChatOf(Source("qwen")), true), (TemplateCapabilities{true, true}));
    EXPECT_FALSE(FindCapabilities(ChatOf(Source("minimax")), true).takes_text);
}

// The conversation converted to the template's form and rendered.
std::string Fitted(const std::string& source, ChatInput input) {
    const Chat chat = ChatOf(source);
    FitConversation(FindCapabilities(chat, !input.tools.is_null()), input);
    const auto text = chat.Render(input);
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    return text.ok() ? text->bytes() : "";
}

// Two rounds; the first has two calls. The client chose the ids.
ChatInput TwoRounds() {
    ChatInput input = OneQuestion("", "x");
    input.messages.push_back(
        {{"role", "assistant"},
         {"content", nullptr},
         {"tool_calls",
          {CallOf("call_a", {{"city", "Paris"}}), CallOf("call_b", {{"city", "Rome"}})}}});
    input.messages.push_back(Result("call_b", "hot"));
    input.messages.push_back(Result("call_a", "fine"));
    input.messages.push_back({{"role", "assistant"},
                              {"content", nullptr},
                              {"tool_calls", {CallOf("call_c", {{"city", "Ulm"}})}}});
    input.messages.push_back(Result("call_c", "cold"));
    return input;
}

// A missing result, one without a call, two with the same id: each call keeps its own.
TEST(TemplateCapabilities, ResultsKeepTheirCalls) {
    const std::string source =
        "{% for m in messages %}{% if (m.tool_calls or []) | length > 1 %}"
        "{{ raise_exception('one call a message') }}{% endif %}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}<{{ c.function.arguments | tojson }}>{% endfor %}"
        "{% endfor %}";
    ChatInput input = TwoRounds();
    while (input.messages.size() > 3) input.messages.erase(input.messages.size() - 1);
    EXPECT_EQ(Fitted(source, input), "x<{\"city\": \"Paris\"}><{\"city\": \"Rome\"}>hot");
    input.messages.push_back(Result("call_x", "what?"));
    EXPECT_EQ(Fitted(source, input), "x<{\"city\": \"Paris\"}>what?<{\"city\": \"Rome\"}>hot");
}

// FunctionGemma's template refuses results without the function's name, which OpenAI's clients
// omit.
TEST(TemplateCapabilities, ResultsThatNeedTheName) {
    const std::string source =
        "{% for m in messages %}{% if m.role == 'tool' %}{% if 'name' in m %}"
        "<response:{{ m.name }}{value:{{ m.content }}}>{% else %}"
        "{{ raise_exception(\"Invalid tool response: 'name' must be provided.\") }}{% endif %}"
        "{% else %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "<call:{{ c.function.name }}{{ c.function.arguments | tojson }}>{% endfor %}{% endif %}"
        "{% endfor %}";
    EXPECT_EQ(Fitted(source, TwoRounds()),
              "x<call:get_weather{\"city\": \"Paris\"}><call:get_weather{\"city\": \"Rome\"}>"
              "<response:get_weather{value:fine}><response:get_weather{value:hot}>"
              "<call:get_weather{\"city\": \"Ulm\"}><response:get_weather{value:cold}>");
    // A client's own name stays beside its value.
    ChatInput input = TwoRounds();
    for (OrderedJson& message : input.messages) {
        if (message["role"] == "tool")
            message["name"] = "of " + message["content"].get<std::string>();
    }
    const std::string text = Fitted(source, input);
    for (const char* value : {"fine", "hot", "cold"}) {
        EXPECT_NE(text.find(fmt::format("<response:of {0}{{value:{0}}}>", value)), text.npos)
            << text;
    }
}

// A result whose id is no call's belongs to the first call that has no result.
TEST(TemplateCapabilities, ResultsOfUnknownIdsHaveNames) {
    const std::string source =
        "{% for m in messages %}{% if m.role == 'tool' %}{% if 'name' in m %}"
        "<{{ m.name }}={{ m.content }}>{% else %}{{ raise_exception('no name') }}{% endif %}"
        "{% else %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "[{{ c.function.name }} {{ c.function.arguments.values() | first }}]{% endfor %}{% endif %}"
        "{% endfor %}";
    ChatInput input = OneQuestion("", "x");
    input.messages.push_back({{"role", "assistant"}, {"content", ""}});
    for (const char* name : {"f", "g", "h"}) {
        OrderedJson call = CallOf(std::string("call_") + name, {{"city", name}});
        call["function"]["name"] = name;
        input.messages.back()["tool_calls"].push_back(call);
    }
    input.messages.push_back(Result("other", "1"));
    input.messages.push_back(Result("call_f", "2"));
    input.messages.push_back(Result("another", "3"));
    input.messages.push_back(Result("more", "4"));
    EXPECT_EQ(Fitted(source, input), "x[f f][g g][h h]<f=2><g=1><h=3><unknown=4>");
    input = OneQuestion("", "x");
    input.messages.push_back(Result("none", "5"));
    EXPECT_EQ(Fitted(source, input), "x<unknown=5>");
}

// Templates that raise "roles must alternate": consecutive messages of one role are joined, as
// mistral_common, Anthropic's API and Ollama do.
TEST(TemplateCapabilities, TurnsThatMustAlternate) {
    const std::string raise =
        "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}";
    const std::string gemma =
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" +
        raise + "{% endif %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}";
    const std::string mistral =
        "{% set ns = namespace(index=0) %}{% set rest = messages %}"
        "{% if messages[0].role == 'system' %}<system>{{ messages[0].content }}"
        "{% set rest = messages[1:] %}{% endif %}"
        "{% for m in rest %}"
        "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
        "{% if (m.role == 'user') != (ns.index % 2 == 0) %}" +
        raise +
        "{% endif %}{% set ns.index = ns.index + 1 %}{% endif %}{% endfor %}"
        "{% for m in rest %}{% if m.role not in ['user', 'assistant', 'tool'] %}" +
        raise +
        "{% endif %}<{{ m.role }}>"
        "{% if m.role == 'assistant' and not m.tool_calls and not m.content %}" +
        raise +
        "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "[{{ c.function.arguments.values() | first }}]{% endfor %}{% endfor %}";
    const std::string free = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    ChatInput input = OneQuestion("S", "a");
    const auto add = [&](const char* role, const char* text) {
        input.messages.push_back({{"role", role}, {"content", text}});
    };
    add("user", "b");
    add("assistant", "c");
    add("assistant", "d");
    add("user", "e");
    add("user", "");
    add("user", "f");
    EXPECT_EQ(Fitted(gemma, input), "<user>S\n\na\n\nb<assistant>c\n\nd<user>e\n\nf");
    EXPECT_EQ(Fitted(mistral, input), "<system>S<user>a\n\nb<assistant>c\n\nd<user>e\n\nf");
    EXPECT_EQ(Fitted(free, input),
              "<system>S<user>a<user>b<assistant>c<assistant>d<user>e<user><user>f");
    // The parts of a joined message equal those of the messages.
    input.messages[1][kPartsMember] = {1};
    EXPECT_EQ(Fitted(mistral, input), "<system>S<user>a\n\nb<assistant>c\n\nd<user>e\n\nf");
    // Training: a turn without a weight is learned, as one of weight 1.
    input.messages[3][kLossMember] = 1;
    EXPECT_EQ(Fitted(mistral, input), "<system>S<user>a\n\nb<assistant>c\n\nd<user>e\n\nf");
    ChatInput apart = input;
    apart.messages[3][kLossMember] = 0;
    FitConversation(FindCapabilities(ChatOf(mistral), false), apart);
    EXPECT_EQ(apart.messages.size(), 5u);  // S, a b, c, d, e f
    // A question behind a result, as agents add reminders.
    ChatInput rounds = TwoRounds();
    rounds.messages.push_back({{"role", "user"}, {"content", "y"}});
    rounds.messages.push_back({{"role", "user"}, {"content", "z"}});
    EXPECT_EQ(Fitted(mistral, rounds),
              "<user>x<assistant>[Paris][Rome]<tool>fine<tool>hot<assistant>[Ulm]<tool>cold"
              "<assistant>OK.<user>y\n\nz");
    EXPECT_NE(Fitted(gemma, rounds).find("cold\n</tool_response>\ny\n\nz"), std::string::npos)
        << Fitted(gemma, rounds);
    // Training: the inserted answer is not learned, and messages of other weights stay apart.
    FitConversation(FindCapabilities(ChatOf(mistral), false), rounds);
    EXPECT_EQ(rounds.messages[rounds.messages.size() - 2][kLossMember], 0);
}

// Reasoning before a call, in the template's own place.
TEST(TemplateCapabilities, ReasoningWhereTheTemplateReadsIt) {
    const std::string calls =
        "{% for c in m.tool_calls or [] %}<{{ c.function.arguments.values() | first }}>{% endfor "
        "%}";
    const std::string begin = "{% for m in messages %}{% if m.role == 'assistant' %}";
    const std::string end = "{% else %}({{ m.content }}){% endif %}{% endfor %}";
    const std::string cohere = begin + "{% if m.tool_calls %}T{{ m.tool_plan }}T" + calls +
                               "{% else %}{{ m.content }}{% endif %}" + end;
    const std::string mistral = begin +
                                "{% if m.content is string %}{{ m.content }}{% else %}"
                                "{% for b in m.content %}{% if b['type'] == 'text' %}{{ b.text }}"
                                "{% elif b['type'] == 'thinking' %}T{{ b.thinking }}T{% else %}"
                                "{{ raise_exception('parts') }}{% endif %}{% endfor %}{% endif %}" +
                                calls + end;
    // A template that hides reasoning, and prints unknown contents.
    const std::string hidden = begin + "{# 'thinking' #}{{ m.content }}" + calls + end;
    for (const char* text : {"", "I look."}) {
        ChatInput input = OneQuestion("", "x");
        input.messages.push_back({{"role", "assistant"},
                                  {"content", text},
                                  {"reasoning_content", "Which city?"},
                                  {"tool_calls", {CallOf("call_1", {{"city", "Paris"}})}}});
        input.messages.push_back(Result("call_1", "fine"));
        input.messages.push_back(
            {{"role", "assistant"}, {"content", "Fine."}, {"reasoning_content", "So"}});
        input.messages.push_back({{"role", "user"}, {"content", "y"}});
        EXPECT_EQ(Fitted(cohere, input), "(x)TWhich city?T<Paris>(fine)Fine.(y)");
        EXPECT_EQ(Fitted(mistral, input),
                  "(x)TWhich city?T" + std::string(text) + "<Paris>(fine)TSoTFine.(y)");
        EXPECT_EQ(Fitted(hidden, input), "(x)" + std::string(text) + "<Paris>(fine)Fine.(y)");
    }
}

// Gemma 4's first template reads results from the message with the calls.
TEST(TemplateCapabilities, ResultsInTheTurnOfTheirCalls) {
    const std::string source = Source("gemma4_turns");
    const auto call = [](const char* city) {
        return "<|tool_call>call:get_weather{city:<|\"|>" + std::string(city) +
               "<|\"|>}<tool_call|>";
    };
    const auto result = [](const std::string& value) {
        return "<|tool_response>response:get_weather" + value + "<tool_response|>";
    };
    const auto words = [](const char* text) {
        return "{value:<|\"|>" + std::string(text) + "<|\"|>}";
    };
    const std::string asked = "<s><|turn>user\nx<turn|>\n<|turn>model\n";
    const std::string first =
        call("Paris") + call("Rome") + result(words("fine")) + result(words("hot"));
    const std::string rounds = asked + first + call("Ulm") + result(words("cold"));
    const std::string thought = "<|channel>thought\n<channel|>";
    const std::string y = "<turn|>\n<|turn>user\ny<turn|>\n<|turn>model\n" + thought;
    ChatInput input = TwoRounds();
    EXPECT_EQ(Fitted(source, input), rounds + thought);
    // The text of a call behind results has no place in the template.
    input.messages[4]["content"] = "I look.";
    EXPECT_EQ(Fitted(source, input), rounds + thought);
    input.messages.push_back({{"role", "assistant"}, {"content", "It is cold."}});
    input.messages.push_back({{"role", "user"}, {"content", "y"}});
    EXPECT_EQ(Fitted(source, input), rounds + "It is cold." + y);
    input.messages[1]["content"] = "I look.";
    EXPECT_TRUE(Fitted(source, input)
                    .starts_with(asked + "I look.<turn|>\n<|turn>model\n" + first + call("Ulm")));
    // JSON reaches the template as values.
    for (const auto& [given, shown] :
         {std::pair(R"({"b": [1, null], "a": "A"})", R"({a:<|"|>A<|"|>,b:[1,null]})"),
          std::pair("[2.5, true]", "{value:[2.5,true]}"), std::pair("null", "{value:null}"),
          std::pair("7", "{value:7}"), std::pair("", "{value:<|\"|><|\"|>}"),
          std::pair("{broken", "{value:<|\"|>{broken<|\"|>}")}) {
        input.messages[5]["content"] = given;
        EXPECT_EQ(Fitted(source, input), asked + "I look.<turn|>\n<|turn>model\n" + first +
                                             call("Ulm") + result(shown) + "It is cold." + y);
    }
    // Gemma's own form.
    ChatInput own = TwoRounds();
    while (own.messages.size() > 2) own.messages.erase(own.messages.size() - 1);
    own.messages[1]["tool_responses"] = OrderedJson::parse(
        R"([{"name": "get_weather", "response": "fine"},
            {"name": "get_weather", "response": "hot"}])");
    EXPECT_EQ(Fitted(source, own), asked + first + thought);
    own.messages[1]["content"] = "Good.";
    own.messages.push_back({{"role", "user"}, {"content", "y"}});
    EXPECT_EQ(Fitted(source, own), asked + first + "Good." + y);
}

// All results of a conversation share a budget of JSON values; others remain text.
TEST(TemplateCapabilities, ResultsOfManyValues) {
    const Chat chat = ChatOf(Source("gemma4_turns"));
    const TemplateCapabilities form = FindCapabilities(chat, true);
    std::string numbers = "[1";
    for (int i = 0; i < 40'000; ++i) numbers += ",1";
    ChatInput input = TwoRounds();
    for (const size_t at : {2u, 3u}) input.messages[at]["content"] = numbers + "]";
    for (int i = 0; i < 160'000; ++i) numbers += ",1";
    input.messages[5]["content"] = numbers + "]";
    FitConversation(form, input);
    size_t read = 0;
    for (const OrderedJson& message : input.messages) read += message.contains(kResponseMember);
    EXPECT_EQ(read, 1u);
    const auto text = chat.Render(input);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_GT(text->size(), 2 * 2 * 40'000u + 2 * 200'000u);
}

// A client may give any member that the conversion writes, with a value of any kind.
TEST(TemplateCapabilities, MembersOfAnyKind) {
    constexpr const char* kMembers[] = {"tool_responses", "response",  "name",
                                        "tool_call_id",   "tool_plan", "reasoning_content",
                                        "function_calls", "metadata",  "content_part_bytes"};
    for (const std::string& name : ToolFormNames()) {
        const Chat chat = ChatOf(Source(name));
        const ConversationForms forms = FindForms(chat);
        for (const char* member : kMembers) {
            for (const OrderedJson& value :
                 {OrderedJson("x"), OrderedJson(5), OrderedJson({{"x", 1}}),
                  OrderedJson::array({1, "x"}), OrderedJson(true)}) {
                ChatInput input = Asked();
                for (OrderedJson& message : TwoRounds().messages) {
                    message[member] = value;
                    input.messages.push_back(message);
                }
                if (PrepareConversation(forms, input)) continue;
                static_cast<void>(chat.Render(input));
            }
        }
    }
}

// Kimi's ids name the function, and its templates show the name only there.
TEST(TemplateCapabilities, IdsThatNameTheFunction) {
    const std::string given =
        "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "<|tool_call_begin|>{{ c.id }}|{{ c.function.arguments | tojson }}{% endfor %}"
        "{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}{{ '\\n' }}{% endfor %}";
    EXPECT_EQ(Fitted(given, TwoRounds()),
              "x\n<|tool_call_begin|>functions.get_weather:0|{\"city\": \"Paris\"}"
              "<|tool_call_begin|>functions.get_weather:1|{\"city\": \"Rome\"}\n"
              "fine[functions.get_weather:0]\nhot[functions.get_weather:1]\n"
              "<|tool_call_begin|>functions.get_weather:2|{\"city\": \"Ulm\"}\n"
              "cold[functions.get_weather:2]\n");
    // A template that numbers calls itself, restarting in each message.
    const std::string made =
        "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
        "<|tool_call_begin|>functions.{{ c.function.name }}:{{ loop.index0 }}|"
        "{{ c.function.arguments | tojson }}{% endfor %}"
        "{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}{{ '\\n' }}{% endfor %}";
    const std::string text = Fitted(made, TwoRounds());
    EXPECT_NE(text.find("fine[functions.get_weather:0]\nhot[functions.get_weather:1]"), text.npos);
    EXPECT_NE(text.find("cold[functions.get_weather:0]"), text.npos) << text;
}

TEST(TemplateCapabilities, FunctionsOfOlmo) {
    const std::string source =
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% if m.get('functions') %}<functions>{{ m.functions }}</functions>{% endif %}"
        "{% if m.get('function_calls') %}<function_calls>{{ m.function_calls }}</function_calls>"
        "{% endif %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}{{ '\\n' }}{% "
        "endfor %}";
    ChatInput input = TwoRounds();
    input.tools = Tools();
    const std::string text = Fitted(source, input);
    EXPECT_NE(text.find("<functions>[{\"name\": \"get_weather\""), text.npos) << text;
    EXPECT_NE(text.find("<function_calls>get_weather(city=\"Paris\")\nget_weather(city=\"Rome\")"
                        "</function_calls>\nenvironment:fine\n"),
              text.npos)
        << text;
}

TEST(TemplateCapabilities, FunctionsInTheSystemMessage) {
    const std::string source =
        "{% for m in messages %}{% if m.role == 'system' and m.get('tools') is string %}"
        "<|system|>{{ m.content }}<|tool|>{{ m.tools }}<|/tool|><|end|>{% else %}"
        "<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}";
    ChatInput input = TwoRounds();
    input.tools = Tools();
    const std::string text = Fitted(source, input);
    EXPECT_NE(text.find("<|tool|>[{\"name\": \"get_weather\""), text.npos) << text;
    EXPECT_NE(text.find("<|assistant|><|tool_call|>[{\"name\": \"get_weather\", \"arguments\": "
                        "{\"city\": \"Paris\"}}, {\"name\""),
              text.npos)
        << text;
    EXPECT_NE(text.find("<|/tool_call|><|end|>"), text.npos) << text;
}

// LFM 2: functions in the system message, results, but no calls.
TEST(TemplateCapabilities, CallsOfLfm2) {
    const std::string source =
        "{% if tools %}<|im_start|>system\nList of tools: <|tool_list_start|>{{ tools | tojson }}"
        "<|tool_list_end|><|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if m.role == 'tool' %}<|tool_response_start|>{{ m.content }}<|tool_response_end|>"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}";
    ChatInput input = TwoRounds();
    input.tools = Tools();
    const std::string text = Fitted(source, input);
    EXPECT_NE(text.find("assistant\n<|tool_call_start|>[get_weather(city=\"Paris\"), "
                        "get_weather(city=\"Rome\")]<|tool_call_end|><|im_end|>\n"
                        "<|im_start|>tool\n<|tool_response_start|>fine<|tool_response_end|>"),
              text.npos)
        << text;
}

// Gemma 2: no system messages, no functions, alternating turns.
TEST(TemplateCapabilities, TurnsOnly) {
    const std::string source =
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('no turns') }}{% endif %}<{{ m.role }}>{{ m.content }}{{ '\\n' }}{% "
        "endfor %}";
    ChatInput input = TwoRounds();
    input.messages.insert(input.messages.begin(),
                          OrderedJson{{"role", "system"}, {"content", "Be brief!"}});
    input.tools = Tools();
    const std::string text = Fitted(source, input);
    EXPECT_TRUE(text.starts_with("<user>Be brief!\n\n")) << text;
    const size_t tools = text.find("<tools>\n{\"name\": \"get_weather\"");
    EXPECT_LT(tools, text.find("\n\nx\n<assistant><tool_call>\n")) << text;
    EXPECT_NE(text.find("<user><tool_response>\nfine\n</tool_response>\n<tool_response>\nhot"),
              text.npos)
        << text;
    input.tools = nullptr;
    EXPECT_TRUE(Fitted(source, input).starts_with("<user>Be brief!\n\nx\n<assistant>"));
}

// DeepSeek's templates show calls, but no functions: functions become plain text, calls keep the
// family's format.
TEST(TemplateCapabilities, FunctionsOfDeepSeek) {
    ChatInput input = TwoRounds();
    input.tools = Tools();
    const std::string text = Fitted(Source("deepseek"), input);
    const size_t tools = text.find("<tools>\n{\"name\": \"get_weather\"");
    const size_t call = text.find(
        "<\xEF\xBD\x9Ctool\xE2\x96\x81"
        "call\xE2\x96\x81"
        "begin\xEF\xBD\x9C>");
    EXPECT_LT(tools, call) << text;
    EXPECT_LT(call, text.find("Where no call is needed")) << text;
    EXPECT_EQ(text.find("<tool_call>"), text.npos) << text;
}

// gpt-oss accepts reasoning or text beside calls, not both.
TEST(TemplateCapabilities, ReasoningAndText) {
    const std::string source =
        "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}"
        "{{ raise_exception('both') }}{% endif %}{{ m.thinking }}|{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ c.function.arguments | tojson "
        "}}>"
        "{% endfor %}{{ '\\n' }}{% endfor %}";
    ChatInput input = OneQuestion("", "x");
    input.messages.push_back({{"role", "assistant"},
                              {"content", "I look."},
                              {"reasoning_content", "Which city?"},
                              {"tool_calls", {CallOf("1", {{"city", "Paris"}})}}});
    input.messages.push_back(Result("1", "fine"));
    EXPECT_EQ(Fitted(source, input),
              "|x\nWhich city?\n\nI look.|<get_weather {\"city\": \"Paris\"}>\n|fine\n");
}

TEST(TemplateCapabilities, ACallBesideATextIsNotLost) {
    const TemplateCapabilities form = FindCapabilities(ChatOf(kNoneAndText), true);
    EXPECT_TRUE(form.text_apart);
    ChatInput input = OneQuestion("", "x");
    input.messages.push_back({{"role", "assistant"},
                              {"content", "I look."},
                              {"tool_calls", {CallOf("1", {{"city", "Paris"}})}}});
    input.messages.push_back(Result("1", "fine"));
    FitToolTurns(form, input.messages);
    EXPECT_EQ(ChatOf(kNoneAndText).Render(input)->bytes(),
              "user: x\nassistant: I look.\n<call>get_weather\n{\"city\": \"Paris\"}tool: fine\n");
}

// Objects would be printed in Python's notation.
TEST(TemplateCapabilities, PrintedArgumentsAreJson) {
    for (const char* printed : {"{{ c.function.name }} {{ c.function.arguments }}",
                                "{{ c.function.name ~ ' ' ~ c.function.arguments }}"}) {
        const std::string source = std::string(
                                       "{% for m in messages %}{{ m.content }}|"
                                       "{% for c in m.tool_calls %}") +
                                   printed + "{% endfor %}{% endfor %}";
        ChatInput input = OneQuestion("", "x");
        input.messages.push_back({{"role", "assistant"},
                                  {"content", nullptr},
                                  {"tool_calls", {CallOf("1", {{"city", "Paris"}})}}});
        FitToolTurns(FindCapabilities(ChatOf(source), true), input.messages);
        EXPECT_EQ(ChatOf(source).Render(input)->bytes(), "x||get_weather {\"city\": \"Paris\"}");
    }
}

// Thousands of calls and results in each form: time is linear in their number.
TEST(TemplateCapabilities, ManyCallsAndResults) {
    const auto many = [](int calls, int results, const std::string& words) {
        OrderedJson messages = OrderedJson::array();
        messages.push_back({{"role", "assistant"}, {"content", ""}});
        for (int i = 0; i < calls; ++i) {
            messages[0]["tool_calls"].push_back(CallOf("call_" + std::to_string(i), "{}"));
        }
        for (int i = 0; i < results; ++i) {
            messages.push_back(Result("call_" + std::to_string(results - 1 - i), words));
        }
        return messages;
    };
    const TemplateCapabilities forms[] = {{.one_call = true},
                                          {.short_ids = true},
                                          {.calls_as_words = true, .results_as_words = true}};
    for (const TemplateCapabilities& form : forms) {
        OrderedJson messages = many(9900, 9900, std::string(1200, 'a'));
        const std::clock_t begin = std::clock();
        FitToolTurns(form, messages);
        EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 2);
        if (form.one_call) {
            ASSERT_EQ(messages.size(), 2 * 9900u);
            for (size_t i = 0; i < messages.size(); i += 2) {
                ASSERT_EQ(messages[i]["tool_calls"][0]["id"], messages[i + 1]["tool_call_id"]);
            }
        }
        if (form.results_as_words) {
            EXPECT_EQ(messages.size(), 2u);
        }
    }
}

TEST(TemplateCapabilities, IdsAreMappedConsistently) {
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
        {{"role", "assistant"},
         {"tool_calls", {CallOf("call_1", {{"a", 1}}), CallOf("", {{"a", 2}})}}},
        Result("call_1", "one"),
        {{"role", "tool"}, {"content", "two"}}};
    messages[0]["tool_calls"][1].erase("id");
    FitToolTurns({.short_ids = true}, messages);
    const OrderedJson& calls = messages[0]["tool_calls"];
    EXPECT_EQ(calls[0]["id"], messages[1]["tool_call_id"]);
    EXPECT_EQ(calls[1]["id"], messages[2]["tool_call_id"]) << "the one that is open";
    EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

std::string FittedText(const Chat& chat, ChatInput input) {
    FitConversation(FindCapabilities(chat, true), input);
    const auto text = chat.Render(input);
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    return text.ok() ? text->bytes() : "";
}

ChatInput CalledOnce() {
    ChatInput input = Asked();
    input.messages.push_back(
        {{"role", "assistant"},
         {"content", ""},
         {"tool_calls", OrderedJson::array({CallOf("a1", {{"city", "Ulm"}})})}});
    input.messages.push_back(Result("a1", "sunny"));
    return input;
}

// Mistral puts the system message before the last message, if that is the user's.
TEST(TemplateCapabilities, SystemMessageHiddenByResults) {
    const Chat chat = ChatOf(
        "{% for t in tools %}{{ t | tojson }}{% endfor %}"
        "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
        "{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}"
        "{% for m in rest %}{% if m.role == 'user' %}[U]{{ s ~ ': ' if s and loop.last }}"
        "{{ m.content }}{% elif m.tool_calls %}[C]{{ m.tool_calls | tojson }}"
        "{% else %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}");
    const TemplateCapabilities form = FindCapabilities(chat, true);
    EXPECT_TRUE(form.system_lost);
    EXPECT_FALSE(form.system_as_user);
    ChatInput input = CalledOnce();
    input.messages.insert(input.messages.begin(),
                          OrderedJson{{"role", "system"}, {"content", "Be kind."}});
    EXPECT_NE(FittedText(chat, input).find("[U]Be kind.\n\nHow is"), std::string::npos);
    // If the user speaks last, the template shows the system message itself.
    input.messages.erase(input.messages.begin() + 2, input.messages.end());
    EXPECT_NE(FittedText(chat, input).find("[U]Be kind.: How is"), std::string::npos);
}

// Qwen 3.5 rejects system messages after the first message.
TEST(TemplateCapabilities, SystemMessagesOnlyAtTheBeginning) {
    const std::string source =
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
        "{{ m.role[0] }}:{{ m.content }};{% endfor %}";
    const TemplateCapabilities form = FindCapabilities(ChatOf(source), false);
    EXPECT_TRUE(form.one_system && form.late_system_as_user);
    EXPECT_EQ(
        Fitted(source, MessagesOf({"s1", "s2", "u1", "s3", "u2", "a1", "s4", "s5", "u3", "u4"})),
        "s:s1\n\ns2;u:u1\n\ns3\n\nu2;a:a1;u:s4\n\ns5\n\nu3;u:u4;");
    // Other templates get the client's messages.
    const std::string any = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}";
    EXPECT_EQ(Fitted(any, MessagesOf({"s1", "s2", "u1", "s3"})), "s:s1;s:s2;u:u1;s:s3;");
}

TEST(TemplateCapabilities, CallsWithoutIdsGetOne) {
    const Chat chat = ChatOf(
        "{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<{{ c.id + ' ' + c.function.name }}"
        "{{ c.function.arguments | tojson }}>{% endfor %}"
        "{% if m.role == 'tool' %}={{ m.tool_call_id + '' }}{% endif %};{% endfor %}"
        "{{ tools | tojson }}");
    ChatInput input = CalledOnce();
    input.messages[1]["tool_calls"][0].erase("id");
    input.messages[2].erase("tool_call_id");
    const std::string text = FittedText(chat, input);
    EXPECT_NE(text.find("<call_00000000 get_weather"), std::string::npos) << text;
    EXPECT_NE(text.find("sunny=call_00000000"), std::string::npos) << text;
}

// llama.cpp's own templates iterate over `tools` if it is defined.
TEST(TemplateCapabilities, UndefinedTools) {
    const Chat chat = ChatOf(
        "{% if tools is defined %}{% for t in tools %}{{ t.function.name }};{% endfor %}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}");
    ChatInput input = OneQuestion("", "Hello");
    EXPECT_EQ(chat.Render(input)->bytes(), "Hello");
    input.tools = Tools();
    EXPECT_EQ(chat.Render(input)->bytes(), "get_weather;Hello");
    // Other templates get none.
    const Chat usual = ChatOf("{{ tools is none }}{{ messages[0].content }}");
    EXPECT_EQ(usual.Render(OneQuestion("", "Hello"))->bytes(), "TrueHello");
}

// Some templates access members of functions that APIs define as optional.
TEST(TemplateCapabilities, FunctionsWithoutOptionalMembers) {
    constexpr const char* kAsks =
        "{% for t in tools or [] %}{{ t.function.name + ': ' + t.function.description }}"
        "{% for p in t.function.parameters.properties.keys() %} {{ p }}{% endfor %};{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}";
    const Chat chat = ChatOf(kAsks);
    EXPECT_TRUE(FindCapabilities(chat, true).whole_functions);
    ChatInput input = OneQuestion("", "Hello");
    input.tools = OrderedJson::array();
    for (const OrderedJson& function : std::initializer_list<OrderedJson>{
             {{"name", "a"}},
             {{"name", "b"}, {"description", nullptr}, {"parameters", nullptr}},
             {{"name", "c"}, {"description", "See"}, {"parameters", OrderedJson::object()}},
             {{"name", "d"}, {"parameters", {{"properties", {{"x", {{"type", "string"}}}}}}}},
             {{"name", "e"}, {"parameters", {{"properties", nullptr}, {"required", nullptr}}}}}) {
        input.tools.push_back({{"type", "function"}, {"function", function}});
    }
    EXPECT_NE(FittedText(chat, input).find("a: ;b: ;c: See;d:  x;e: ;"), std::string::npos)
        << FittedText(chat, input);
    // Other templates get only the given members.
    const Chat usual =
        ChatOf("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}");
    EXPECT_FALSE(FindCapabilities(usual, true).whole_functions);
    input.tools.erase(0);
    EXPECT_NE(FittedText(usual, input).find(R"({"name": "b"})"), std::string::npos);
}

// Kimi-K2's later templates queue ids in a namespace's list.
TEST(TemplateCapabilities, IdsQueuedInANamespace) {
    const Chat chat = ChatOf(
        "{% set w = namespace(ids=[], n=0) %}{{ tools | tojson }}{% for m in messages %}"
        "{% if m.role == 'tool' %}## Return of {{ w.ids.pop(0) }}:{% endif %}{{ m.content or '' }}"
        "{% for c in m.tool_calls or [] %}{% set id = 'functions.' ~ c.function.name ~ ':' ~ w.n %}"
        "{% set w.n = w.n + 1 %}{% set _ = w.ids.append(id) %}"
        "<|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>"
        "{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}{% endfor %}");
    EXPECT_FALSE(FindCapabilities(chat, true).calls_as_words);
    const std::string text = FittedText(chat, CalledOnce());
    EXPECT_NE(text.find("<|tool_call_begin|>functions.get_weather:0<|"), std::string::npos) << text;
    EXPECT_NE(text.find("## Return of functions.get_weather:0:sunny"), std::string::npos) << text;
}

}  // namespace
}  // namespace weft::chat
