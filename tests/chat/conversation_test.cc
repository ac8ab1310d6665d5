// Conversations in the spellings of clients and data sets become the form for templates; contents
// take the form that a template accepts.
#include "chat/conversation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/file.h"
#include "base/json_digits.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

const tokenizer::Tokenizer& ConversationTokens() {
    static const auto tokenizer = tokenizer::Tokenizer::Make(tokenizer::TinySpm({"a"})).value();
    return *tokenizer;
}

// The template's output for the messages, or the error.
std::string Told(const std::string& source, OrderedJson messages,
                 OrderedJson tools = OrderedJson()) {
    const auto chat = Chat::Make(source, ConversationTokens());
    if (!chat.ok()) return "no chat: " + chat.error().message;
    ChatInput input;
    input.messages = std::move(messages);
    input.tools = std::move(tools);
    input.add_generation_prompt = false;
    input.now_s = 1;
    if (const auto fault = PrepareConversation(FindForms(*chat), input)) {
        return "fault in " + std::to_string(fault->at) + " " + fault->member + ": " +
               fault->message + " (" + fault->code + ")";
    }
    const auto text = chat->Render(input);
    return text.ok() ? text->bytes() : "error: " + text.error().message;
}

OrderedJson Parsed(const char* json) {
    return OrderedJson::parse(json);
}

// Shows everything that templates use, with calls as most templates write them.
constexpr const char* kShowsAll =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}{% endfor %}";
constexpr const char* kOneCall = R"(<user>2+3?<assistant>[add {"a": 2}]<tool>5<assistant>It is 5.)";

TEST(Conversation, SpellingsGiveOneText) {
    const char* const calls[] = {
        R"({"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "add", "arguments": "{\"a\":2}"}}]})",
        R"({"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "add", "arguments": {"a": 2}}}]})",
        R"({"role": "assistant", "tool_calls": [{"function": {"name": "add",
            "arguments": "{\"a\": 2}"}}], "function_call": null, "refusal": null})",
        R"({"role": "assistant", "content": [], "tool_calls": [{"id": "1", "name": "add",
            "arguments": {"a": 2}}]})",
        R"({"role": "assistant", "content": null, "function_call": {"name": "add",
            "arguments": "{\"a\":2}"}})",
    };
    const char* const results[] = {
        R"({"role": "tool", "tool_call_id": "1", "content": "5"})",
        R"({"role": "tool", "content": [{"type": "text", "text": "5"}]})",
        R"({"role": "function", "name": "add", "content": "5", "tool_calls": null})",
    };
    for (const char* call : calls) {
        for (const char* result : results) {
            const OrderedJson messages = OrderedJson::array(
                {{{"role", "user"}, {"content", "2+3?"}},
                 Parsed(call),
                 Parsed(result),
                 {{"role", "assistant"}, {"content", "It is 5."}, {"tool_calls", nullptr}}});
            EXPECT_EQ(Told(kShowsAll, messages), kOneCall) << messages;
        }
    }
}

// Integers beyond 64 bits keep their digits, in both forms of arguments, with and without calls in
// the template.
TEST(Conversation, DigitsOfIntegers) {
    const std::string number = "-123456789012345678901234567890", other = "18446744073709551616";
    const std::string arguments = "{\"a\": " + number + ", \"b\": [" + other + ", 7, 1.5]}";
    OrderedJson calls =
        Parsed(R"([{"type": "function", "function": {"name": "add", "arguments": ""}}])");
    calls[0]["function"]["arguments"] = arguments;
    OrderedJson messages = OrderedJson::array(
        {{{"role", "user"}, {"content", "2+3?"}}, {{"role", "assistant"}, {"content", ""}}});
    messages[1]["tool_calls"] = calls;
    const char* const hides_calls =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    const char* const takes_text =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
        "[{{ c.function.name + c.function.arguments }}]{% endfor %}{% endfor %}";
    for (const char* source : {kShowsAll, hides_calls, takes_text}) {
        const std::string told = Told(source, messages);
        EXPECT_NE(told.find(arguments), std::string::npos) << told;
    }
    AnswerParser parser(ToolCallFormat::kQwen);
    auto said =
        parser.Push("<tool_call>{\"name\": \"add\", \"arguments\": " + arguments + "}</tool_call>");
    ASSERT_EQ(said.tool_calls.size(), 1u);
    EXPECT_EQ(DumpJson(said.tool_calls[0].arguments),
              "{\"a\":" + number + ",\"b\":[" + other + ",7,1.5]}");
}

TEST(Conversation, ContentsBecomeOneString) {
    EXPECT_EQ(Told(kShowsAll, Parsed(R"([
        {"role": "developer", "content": "Be kind."},
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text",
            "text": " brief.", "image": null}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "\nb"},
            {"type": "input_text", "text": ""}, {"type": "input_text", "text": "c"}]},
        {"role": "assistant", "content": null, "reasoning_content": "hm"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "refusal": "Never."},
        {"role": "tool", "content": null}])")),
              "<system>Be kind.<system>Be brief.<user>a\nbc<assistant>(hm)<user><assistant>No."
              "<user>?<assistant>Never.<tool>");
}

TEST(Conversation, FaultsNameMessageAndMember) {
    const auto told = [](const char* second) {
        OrderedJson messages = Parsed(R"([{"role": "user", "content": "a"}])");
        messages.push_back(Parsed(second));
        return Told(kShowsAll, messages);
    };
    EXPECT_EQ(told(R"({"role": "user", "content": null})"),
              "fault in 1 content: 'content' is missing. (missing)");
    EXPECT_EQ(told(R"({"role": "user"})"), "fault in 1 content: 'content' is missing. (missing)");
    EXPECT_EQ(told(R"({"role": "user", "content": 3})"),
              "fault in 1 content: Invalid type for 'content': expected a string or a list of "
              "parts. (invalid_type)");
    EXPECT_EQ(told(R"({"role": "user", "content": [{"type": "image_url", "image_url": "x"}]})"),
              "fault in 1 content: This model accepts text only, not parts of type 'image_url'. "
              "(unsupported_content)");
    EXPECT_EQ(told(R"({"role": "user", "content": [{"type": "refusal", "refusal": "x"}]})"),
              "fault in 1 content: This model accepts text only, not parts of type 'refusal'. "
              "(unsupported_content)");
    EXPECT_EQ(told(R"({"role": "user", "content": [{"type": "text"}]})"),
              "fault in 1 content: A part of 'content' has no text. (invalid_type)");
    EXPECT_EQ(told(R"({"role": "assistant", "tool_calls": "f"})"),
              "fault in 1 tool_calls: 'tool_calls' must be a list of calls. (invalid_type)");
    for (const char* results : {R"("x")", "5", R"({"name": "f"})", R"(["x"])"}) {
        const std::string last =
            fmt::format(R"({{"role": "assistant", "content": "", "tool_responses": {}}})", results);
        OrderedJson messages = Parsed(R"([{"role": "user", "content": "a"}])");
        messages.push_back(Parsed(last.c_str()));
        const std::string source =
            ReadTextFile(support::TestData("/chat/gemma4_turns.jinja")).value();
        EXPECT_EQ(Told(source, messages),
                  "fault in 1 tool_responses: 'tool_responses' must be a list of objects. "
                  "(invalid_type)");
    }
    const std::string deep = R"({"role": "assistant", "tool_calls": [{"function": {"name": "f",
        "arguments": ")" + std::string(200, '[') +
                             std::string(200, ']') + R"("}}]})";
    EXPECT_NE(told(deep.c_str()).find("'tool_calls' exceeds a limit on JSON"), std::string::npos);
    EXPECT_EQ(told("5"), "error: chat: a message is not an object with a 'role' of type string");
}

TEST(Conversation, PreparingAgainChangesNothing) {
    const auto chat = Chat::Make(kShowsAll, ConversationTokens());
    ASSERT_TRUE(chat.ok());
    ChatInput input;
    input.messages = Parsed(R"([{"role": "developer", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": "u"}, {"role": "assistant", "function_call": {"name": "f",
        "arguments": "{\"a\": 1}"}}, {"role": "function", "content": "r"}])");
    const ConversationForms forms = FindForms(*chat);
    ASSERT_FALSE(PrepareConversation(forms, input));
    const OrderedJson once = input.messages;
    ASSERT_FALSE(PrepareConversation(forms, input));
    EXPECT_EQ(input.messages, once);
}

// Content forms accepted by templates for text and images; the user's text must be shown.
TEST(ContentForm, IsWhatTheTemplateShows) {
    const OrderedJson messages = Parsed(R"([{"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "U"}, {"type": "text", "text": "V"}]},
        {"role": "assistant", "content": "A"}, {"role": "user", "content": "W"}])");
    const char* const kParts =
        "{% for m in messages %}{{ m.role[0] }}:{% for p in m.content %}"
        "{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %};{% endfor %}";
    EXPECT_EQ(Told(kParts, messages), "s:S;u:UV;a:A;u:W;");
    // LLaVA: parts by index, and filtered.
    EXPECT_EQ(Told("{% for m in messages %}{{ m.role[0] }}:"
                   "{% if m.role == 'user' %}"
                   "{% for p in m.content | selectattr('type', 'equalto', 'text') %}{{ p.text }}"
                   "{% endfor %}{% else %}{{ m.content[0].text }}{% endif %};{% endfor %}",
                   messages),
              "s:S;u:UV;a:A;u:W;");
    // One form for the user, another for other roles.
    EXPECT_EQ(Told("{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'user' %}"
                   "{{ m.content[0]['text'] }}{% else %}{{ m.content + '' }}{% endif %};"
                   "{% endfor %}",
                   messages),
              "s:S;u:UV;a:A;u:W;");
    EXPECT_EQ(Told("{% for m in messages %}{{ m.role[0] }}:{% if m.role == 'system' %}"
                   "{{ m.content[0]['text'] }}{% else %}{{ m.content + '' }}{% endif %};"
                   "{% endfor %}",
                   messages),
              "s:S;u:UV;a:A;u:W;");
    // A template that accepts both gets the client's form.
    EXPECT_EQ(Told("{% for m in messages %}{{ m.role[0] }}:{% if m.content is string %}'"
                   "{{ m.content }}'{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}"
                   "{% endif %};{% endfor %}",
                   messages),
              "s:'S';u:UV;a:'A';u:'W';");
    // An empty content has one part too; a content that is not a string has none.
    EXPECT_EQ(Told("{% for m in messages %}{{ m.content[0].type }}={{ m.content[0].text }};"
                   "{% endfor %}",
                   Parsed(R"([{"role": "user", "content": ""}])")),
              "text=;");
}

// A form may depend on a message's position, on tools, or on the conversation's beginning, which no
// probe covers.
TEST(ContentForm, ChangesWithinAConversation) {
    const OrderedJson two = Parsed(R"([{"role": "system", "content": "S"},
        {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"},
        {"role": "user", "content": [{"type": "text", "text": "V"}, {"type": "text", "text": "W"}]}
        ])");
    const std::string parts = "{% for p in m.content %}{{ p['text'] }}{% endfor %}";
    const auto each = [](const std::string& shown) {
        return "{% for m in messages %}" + shown + ";{% endfor %}";
    };
    for (const std::string& source : {
             each("{% if loop.first %}{{ m.content }}{% else %}" + parts + "{% endif %}"),
             each("{% if loop.last %}" + parts + "{% else %}{{ m.content }}{% endif %}"),
             each("{% if loop.last %}{{ m.content }}{% else %}" + parts + "{% endif %}"),
             each("{% if loop.last %}{{ m.content + '' }}{% else %}" + parts + "{% endif %}"),
             "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" +
                 each(parts),
             "{% if messages | length < 3 %}{{ raise_exception('no') }}{% endif %}" + each(parts),
             each("{{ m.content | map(attribute='text') | join }}"),
             each("{{ m.content | join }}"),
             each("{{ m.content | selectattr('type', '==', 'text') | join('', 'text') }}"),
             each("{% for p in m.content %}{% if 'text' in p %}{{ p.get('text') }}{% endif %}"
                  "{% endfor %}"),
             each("{% for p in m.content %}{% if p is mapping %}{{ p.text }}{% endif %}"
                  "{% endfor %}"),
             each("{% set c = m.content %}{{ c | string }}"),
             each("{% set c = m.content %}{{ '%s' % c }}"),
             each("{% set c = m.content %}{{ c ~ '' }}"),
         }) {
        EXPECT_EQ(Told(source, two), "S;U;A;VW;") << source;
    }
    // A string has one part when iterated; indexing gives characters.
    EXPECT_EQ(Told(each("{{ m.content[0].type }}{{ m.content[0] }}{{ m.content[-1]['text'] }}"
                        "{{ m.content[1] }}{{ m.content[:2] }}{{ m.content | first }}"
                        "{{ (m.content | last).text }}"),
                   Parsed(R"([{"role": "user", "content": "\u00e9ab"}])")),
              "text\u00e9\u00e9aba\u00e9a\u00e9\u00e9ab;");
    // The form with tools may differ from the one without.
    const std::string asked = "{% if tools %}" + each(parts) + "{% else %}" +
                              each("{{ m.content + '' }}") + "{% endif %}";
    ChatInput input;
    input.messages = two;
    for (const bool tools : {false, true}) {
        const auto chat = Chat::Make(asked, ConversationTokens());
        ASSERT_TRUE(chat.ok());
        if (tools) input.tools = Parsed(R"([{"type": "function", "function": {"name": "f"}}])");
        ChatInput prepared = input;
        ASSERT_FALSE(PrepareConversation(FindForms(*chat), prepared));
        EXPECT_TRUE(chat->Render(prepared)->view().ends_with(";U;A;VW;")) << tools;
    }
}

// A template may change the user's text; it still counts as shown.
TEST(ContentForm, TemplatesMayChangeText) {
    const OrderedJson messages = Parsed(R"([{"role": "user", "content": "abc dEF"}])");
    for (const auto& [filter, shown] : std::initializer_list<std::pair<const char*, const char*>>{
             {"| upper", "ABC DEF"},
             {"| capitalize", "Abc def"},
             {"| title", "Abc Def"},
             {"| replace(' ', '_')", "abc_dEF"},
             {"| reverse", "FEd cba"},
             {".split(' ')[-1]", "dEF"},
             {"[:5]", "abc d"},
             {"| tojson", "\"abc dEF\""}}) {
        const std::string source =
            "{% for m in messages %}{{ m.content " + std::string(filter) + " }}{% endfor %}";
        EXPECT_EQ(Told(source, messages), shown) << source;
    }
}

// Gemma 3: each part is trimmed, as in transformers.
TEST(ContentForm, PartsStaySeparateIfShownSeparately) {
    const std::string source =
        "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content | trim }}"
        "{% else %}{% for p in m.content %}{{ p.text | trim }}{% endfor %}{% endif %}{% endfor %}";
    EXPECT_EQ(Told(source, Parsed(R"([{"role": "user", "content": [{"type": "text", "text": "A "},
                                     {"type": "input_text", "text": " B"}]},
                                     {"role": "assistant", "content": " C "}])")),
              "<user>AB<assistant>C");
    EXPECT_EQ(Told("{% for m in messages %}{{ m.content | map(attribute='text') | join('/') }};"
                   "{% endfor %}",
                   Parsed(R"([{"role": "user", "content": [{"type": "text", "text": "A"},
                             {"type": "text", "text": "B"}]}])")),
              "A/B;");
}

TEST(ContentForm, RejectsTemplatesThatOmitTheUser) {
    for (const char* source :
         {"Hello.", "{% for m in messages %}{{ m.role }}{% endfor %}",
          "{% for m in messages %}{% for p in m.content %}{{ p.image }}{% endfor %}{% endfor %}",
          "{% for m in messages %}{{ m.content if m.role == 'assistant' }}{% endfor %}"}) {
        const std::string told = Told(source, Parsed(R"([{"role": "user", "content": "x"}])"));
        EXPECT_TRUE(told.starts_with("no chat: ")) << told;
        EXPECT_NE(told.find("omits the user's text"), std::string::npos) << told;
    }
    // A template that rejects every probe gives its own error.
    const std::string told = Told("{{ raise_exception('only on Sundays') }}",
                                  Parsed(R"([{"role": "user", "content": "x"}])"));
    EXPECT_NE(told.find("only on Sundays"), std::string::npos) << told;
}

// Mistral's parts of reasoning become the message's reasoning.
TEST(Conversation, PartsOfReasoning) {
    for (const char* words : {R"("Which city?")", R"([{"type": "text", "text": "Which city?"}])"}) {
        const std::string messages =
            R"([{"role": "user", "content": "2+3?"}, {"role": "assistant", "content":
            [{"type": "thinking", "thinking": )" +
            std::string(words) + R"(}, {"type": "text", "text": "I look."}]}])";
        EXPECT_EQ(Told(kShowsAll, Parsed(messages.c_str())),
                  "<user>2+3?<assistant>I look.(Which city?)");
    }
    EXPECT_NE(Told(kShowsAll, Parsed(R"([{"role": "user", "content":
                                      [{"type": "thinking", "thinking": "x"}]}])"))
                  .find("not parts of type 'thinking'"),
              std::string::npos);
}

// Limits a template's cost while a model loads: about 50 probes.
TEST(ContentForm, ProbesOfAHostileTemplateAreShort) {
    constexpr int64_t kMostProbes = 100;
    for (const char* work : {"{{ a * b }}", "{% set x = 'a b ' * 90000 %}",
                             "{% set x = range(9000) | sort(reverse=true) | first %}"}) {
        const std::string source = "{% for a in range(100000) %}{% for b in range(100000) %}" +
                                   std::string(work) +
                                   "{% endfor %}{% endfor %}{{ messages[0].content }}";
        const std::clock_t begin = std::clock();
        const auto chat = Chat::Make(source, ConversationTokens());
        ASSERT_TRUE(chat.ok());
        FindForms(*chat);
        const int64_t used_ms = (std::clock() - begin) * 1000 / CLOCKS_PER_SEC;
        EXPECT_LE(used_ms, kMostProbes * kProbeLimits.cpu_ms) << work;
    }
}

// The template of one family: the same text as transformers with contents as parts.
TEST(ContentForm, SmolVlm) {
    const std::string source = ReadTextFile(support::TestData("/chat/smolvlm.jinja")).value();
    EXPECT_EQ(Told(source, Parsed(R"([{"role": "system", "content": "Be brief."},
                     {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type":
                     "text", "text": " here"}]}, {"role": "assistant", "content": "ok"}])")),
              "<|im_start|>System: Be brief.<end_of_turn>\nUser: Look here<end_of_turn>\n"
              "Assistant: ok<end_of_turn>\n");
}

}  // namespace
}  // namespace weft::chat
