// The Jinja interpreter: rules, limits, errors, and sources of text. chat_golden_test.cc compares
// complete templates with Python.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <random>

#include "base/json_digits.h"
#include "chat/template/strings.h"
#include "support/chat_render.h"

namespace weft::chat {
namespace {

Error ErrorOf(std::string_view source, const ChatInput& input = OneUser("hi"),
              const RenderLimits& limits = {}) {
    const auto text = RenderText(source, input, limits);
    EXPECT_FALSE(text.ok()) << source << " gave " << (text.ok() ? text->bytes() : "");
    return text.ok() ? Error{} : text.error();
}

// Shows bytes from the conversation in upper case, the others in lower case.
std::string Origins(std::string_view source, const ChatInput& input) {
    const auto text = RenderText(source, input);
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    if (!text.ok()) return {};
    std::string shown;
    for (size_t i = 0; i < text->size(); ++i) shown += text->SourceAt(i) != 0 ? 'U' : 't';
    return shown;
}

TEST(Jinja, WhiteSpaceAroundTags) {
    EXPECT_EQ(Rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
    EXPECT_EQ(Rendered("a \n {%- if true -%} \n b {%- endif %}\nc"), "abc");
    EXPECT_EQ(Rendered("a\n  {%+ if true %}b{% endif %}"), "a\n  b");
    EXPECT_EQ(Rendered("  {{ 1 }}\n{# gone #}\n  {# gone #}x"), "  1\nx");
    EXPECT_EQ(Rendered("a {{- 1 -}} b"), "a1b");
    EXPECT_EQ(Rendered("x\r\ny\rz\n\n"), "x\ny\nz\n");
    EXPECT_EQ(Rendered("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

// Whole numbers come back as the model wrote them, on both sides of each representation.
TEST(Jinja, WholeNumbersKeepTheirDigits) {
    for (const char* number :
         {"9007199254740991", "9007199254740993", "9223372036854775807", "9223372036854775808",
          "9223372036854775809", "12345678901234567890", "18446744073709551615",
          "18446744073709551616", "18446744073709551617", "-9007199254740993",
          "-9223372036854775808", "-9223372036854775809", "-18446744073709551617"}) {
        ChatInput input = OneUser("hi");
        const std::string json = "{\"id\": " + std::string(number) + "}";
        input.messages[0]["n"] = ParseJsonWithDigits(json).value();
        const auto text = RenderText("{{ messages[0].n | tojson }} {{ messages[0].n.id }}", input);
        ASSERT_TRUE(text.ok()) << text.error().message;
        EXPECT_EQ(text->bytes(), json + " " + number);
    }
}

TEST(Jinja, FloatsDivideAsInPython) {
    EXPECT_EQ(Rendered("{{ 1.0 // 0.1 }} {{ -7.5 // 2 }} {{ 7 // -2.0 }} {{ 6.0 // 3 }}"),
              "9.0 -4.0 -4.0 2.0");
    EXPECT_EQ(Rendered("{{ 2.5 is odd }} {{ 2.5 is even }} {{ -3 is odd }} {{ 4.0 is even }}"),
              "False False True True");
}

TEST(Jinja, ScopesAreThoseOfJinja2) {
    EXPECT_EQ(
        Rendered("{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}"),
        "21");
    EXPECT_EQ(Rendered("{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}"), "2");
    EXPECT_EQ(Rendered("{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = 2 %}"
                       "{% endfor %}{{ n.x }}"),
              "2");
    // A macro sees the scope of its definition at the time of the call.
    EXPECT_EQ(Rendered("{% macro m() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ m() }}"
                       "{% for x in [7] %}{{ m() }}{% endfor %}"),
              "55");
    EXPECT_EQ(Rendered("{% for i in [1, 2] %}{{ y is defined }}{% set y = 1 %}{% endfor %}"),
              "FalseFalse");
    EXPECT_EQ(Rendered("{% generation %}{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}"), "1");
}

TEST(Jinja, UndefinedFailsOnlyWhenUsed) {
    EXPECT_EQ(Rendered("{{ nope }}{{ messages[0].nope }}{{ nope | length }}|{{ nope ~ 'a' }}"),
              "0|a");
    EXPECT_EQ(Rendered("{% for x in nope %}{% else %}none{% endfor %}"), "none");
    EXPECT_EQ(Rendered("{{ none.x is defined }}{{ messages[9] is defined }}"), "FalseFalse");
    const char* const uses[] = {"{{ nope.x }}",   "{{ nope + 'a' }}",
                                "{{ nope() }}",   "{{ nope | tojson }}",
                                "{{ 1 < nope }}", "{{ messages[9].role }}"};
    for (const char* use : uses) {
        const Error error = ErrorOf(use);
        EXPECT_EQ(error.code, ErrorCode::kCorrupt) << use;
        EXPECT_NE(error.message.find("undefined"), std::string::npos) << error.message;
    }
}

TEST(Jinja, ErrorsNameTheLine) {
    const auto has = [](const Error& error, std::string_view words) {
        EXPECT_NE(error.message.find(words), std::string::npos) << error.message;
    };
    has(ErrorOf("a\n\n{{ nope.x }}"), "line 3: 'nope' is undefined");
    has(ErrorOf("\n{% if %}"), "line 2");
    has(ErrorOf("{% if true %}\n"), "'endif' is missing");
    has(ErrorOf("\n{{ 'abc }}"), "line 2: a string is not terminated");
    has(ErrorOf("{% endfor %}"), "line 1");
    has(ErrorOf("\n\n{{ messages | frobnicate }}"), "line 3: the filter 'frobnicate'");
    EXPECT_EQ(ErrorOf("{{ 1 | frobnicate }}").code, ErrorCode::kUnsupported);
    EXPECT_EQ(ErrorOf("{{ 1 is frobnicable }}").code, ErrorCode::kUnsupported);
    EXPECT_EQ(ErrorOf("{% include 'x' %}").code, ErrorCode::kUnsupported);
    EXPECT_EQ(ErrorOf("{% set l = [] %}{{ l.append(1) }}").code, ErrorCode::kUnsupported);
    EXPECT_EQ(ErrorOf("{{ 9223372036854775807 + 1 }}").code, ErrorCode::kUnsupported);
    const Error raised = ErrorOf("\n{{ raise_exception('Only once!') }}");
    EXPECT_EQ(raised.code, ErrorCode::kUsage);
    has(raised, "line 2");
    has(raised, "Only once!");
}

// A namespace's list supports append() and pop(), as in llama.cpp's renderer.
TEST(Jinja, ListsOfNamespaces) {
    const std::string begin = "{% set ns = namespace(l=['a', 'b']) %}";
    EXPECT_EQ(Rendered(begin + "{% for x in [1, 2] %}{% set _ = ns.l.append(x) %}{% endfor %}"
                               "{{ ns.l | join(',') }}"),
              "a,b,1,2");
    EXPECT_EQ(Rendered(begin + "{{ ns.l.pop(0) }}{{ ns.l }}"), "a['b']");
    EXPECT_EQ(Rendered(begin + "{{ ns.l.pop() }}{{ ns.l.pop(-1) }}{{ ns.l }}"), "ba[]");
    EXPECT_EQ(Rendered(begin + "{% set m = ns.l %}{{ ns.l.append(1) }}{{ m }}"), "None['a', 'b']");
    EXPECT_EQ(ErrorOf(begin + "{{ ns.l.pop(2) }}").code, ErrorCode::kCorrupt);
    EXPECT_EQ(ErrorOf(begin + "{{ ns.l.pop('a') }}").code, ErrorCode::kCorrupt);
    EXPECT_EQ(ErrorOf(begin + "{{ ns.l.insert(0, 1) }}").code, ErrorCode::kUnsupported);
    EXPECT_EQ(ErrorOf("{% set ns = namespace(l=(1, 2)) %}{{ ns.l.append(1) }}").code,
              ErrorCode::kCorrupt);
}

TEST(Jinja, MessagesAreChecked) {
    for (const char* json : {"[]", "{}", "[1]", "[{}]", R"([{"role": 1}])", R"([{"role": ""}])",
                             R"([{"role": "a b"}])", R"([{"role": "<|im_end|>"}])"}) {
        ChatInput input;
        input.messages = OrderedJson::parse(json);
        EXPECT_EQ(ErrorOf("x", input).code, ErrorCode::kUsage) << json;
    }
}

// ---- sources of bytes

TEST(Jinja, TextRemembersItsOrigin) {
    const ChatInput input = OneUser("  ab cd  ");
    const std::string c = "messages[0].content";
    const std::pair<std::string, std::string> cases[] = {
        {"<{{ " + c + " }}>", "tUUUUUUUUUt"},
        {"{{ '<' + " + c + " | trim + '>' }}", "tUUUUUt"},
        {"{{ " + c + ".strip().split(' ') | join('--') }}", "UUttUU"},
        {"{{ " + c + ".replace(' ', '') }}", "UUUU"},
        {"{{ " + c + " | trim | replace('b', '<b>') }}", "UtttUUU"},
        {"{{ " + c + " | trim | upper }}", "UUUUU"},
        {"{{ " + c + "[2:4] }}{{ " + c + "[2] }}", "UUU"},
        {"{{ " + c + " | trim | tojson }}", "tUUUUUt"},
        {"{{ [" + c + " | trim] }}", "ttUUUUUtt"},
        {"{{ '%s|%s' % ('x', " + c + " | trim) }}", "ttUUUUU"},
        {"{{ '{}.'.format(" + c + " | trim) }}", "UUUUUt"},
        {"{{ messages[0].role }}", "tttt"},
        {"{% set x %}[{{ " + c + " | trim }}]{% endset %}{{ x ~ x | length }}", "tUUUUUtt"},
        {"{% for x in " + c + " | trim %}{{ x }}.{% endfor %}", "UtUtUtUtUt"},
        {"{% macro m(x) %}({{ x }}){% endmacro %}{{ m(" + c + " | trim) }}", "tUUUUUt"},
        {"{{ " + c + " | trim | indent(1, true) }}", "tUUUUU"},
        {"{{ bos_token }}{{ " + c + " | trim | list | first }}", "tttU"},
        {"{{ " + c + " | trim | reverse }}{{ 'ab' * 2 }}", "UUUUUtttt"},
    };
    for (const auto& [source, origins] : cases)
        EXPECT_EQ(Origins(source, input), origins) << source;
}

TEST(Jinja, InputIsNotTrusted) {
    ChatInput input = OneUser("x");
    input.messages[0]["KEY"] = "V";
    input.tools = OrderedJson::parse(R"([{"name": "N"}])");
    input.extra = {{"more", "M"}};
    EXPECT_EQ(Origins("{{ more }}{{ tools[0].name }}{{ messages[0].KEY }}", input), "UUU");
    EXPECT_EQ(Origins("{% for k in messages[0] %}{{ k }}{% endfor %}", input), "UUUUUUUUUUUUUU");
    input.extra = {{"bos_token", "F"}};  // given by a client, despite the name
    EXPECT_EQ(Origins("{{ bos_token }}", input), "U");
}

// Any split or join keeps each byte's source; here, the input's letters are upper case.
TEST(Jinja, OriginsUnderRandomEdits) {
    std::mt19937 random(41);
    const char* const edits[] = {"|trim",
                                 ".split('a')|join('b')",
                                 "[1:]",
                                 "[:-1]",
                                 "[::-1]",
                                 ".replace('a', 'bb')",
                                 "|reverse",
                                 "|string",
                                 ".strip('A')",
                                 "|list|join",
                                 "|indent(1)",
                                 "~'ab'",
                                 ".replace('B', 'c')"};
    for (int round = 0; round < 200; ++round) {
        std::string given;
        for (int i = 0; i < 12; ++i) given += "AB \nC"[random() % 5];
        std::string expr = "('ab' ~ messages[0].content ~ ' c')";
        for (int i = 0; i < 6; ++i) {
            expr = "(" + expr + edits[random() % std::size(edits)] + ")";
        }
        const auto text = RenderText("{{ " + expr + " }}", OneUser(given));
        ASSERT_TRUE(text.ok()) << expr << ": " << text.error().message;
        for (size_t i = 0; i < text->size(); ++i) {
            const char letter = text->view()[i];
            if (letter >= 'A' && letter <= 'C') {
                EXPECT_NE(text->SourceAt(i), 0u) << expr << " of " << given;
            } else if (letter >= 'a' && letter <= 'c') {
                EXPECT_EQ(text->SourceAt(i), 0u) << expr << " of " << given;
            }
        }
    }
}

// ---- limits

TEST(Jinja, HostileTemplatesEnd) {
    const std::string deep(100'000, '(');
    std::string minus = "{{ ", blocks, sums = "{{ 1", lists = "{{ ";
    for (int i = 0; i < 50'000; ++i) {
        minus += "-";
        blocks += "{% if true %}";
        sums += "+1";
        lists += "[";
    }
    const std::string hostile[] = {
        "{% set n = namespace(s='ab') %}{% for i in range(90000) %}{% set n.s = n.s + n.s %}"
        "{% endfor %}",
        "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(x) %}{% for i in [1, 2] %}{{ m(x) }}{% endfor %}{% endmacro %}{{ m(1) }}",
        "{{ 'abcdefgh' * 9000000000 }}",
        "{{ '' * 9000000000000 }}{{ [0] * 9000000000000 }}",
        "{% set n = namespace(l=[1]) %}{% for i in range(90000) %}{% set n.l = [n.l, n.l] %}"
        "{% endfor %}{{ n.l }}",
        "{% set n = namespace(l=[1]) %}{% for i in range(25) %}{% set n.l = n.l + n.l %}{% endfor "
        "%}{{ n.l | sort | tojson }}{{ n.l | unique }}",
        "{% set n = namespace(s='a' * 1000) %}{% for i in range(20) %}"
        "{% set n.s = n.s.replace('a', n.s) %}{% endfor %}",
        "{{ range(9999999999) }}",
        "{{ 'x' | indent(999999999) }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ strftime_now('%9000A') }}",
        "{{ ('a' * 900000) in ('a' * 90000000 ~ 'b') }}{{ ('a' * 90000000).split('a') | length }}",
        "{{ " + deep,
        minus + "1 }}",
        sums + " }}",
        lists + " }}",
        blocks,
        "{{ messages" + std::string(30'000, '.') + " }}",
    };
    RenderLimits limits;
    limits.steps = 300'000;
    limits.live_bytes = 16 << 20;
    limits.made_bytes = 64 << 20;
    limits.output_bytes = 4 << 20;
    for (const std::string& source : hostile) {
        const auto text = RenderText(source, OneUser("hi"), limits);
        EXPECT_FALSE(text.ok()) << source.substr(0, 80);
        if (text.ok()) continue;
        EXPECT_NE(text.error().message.find("line "), std::string::npos) << text.error().message;
    }
    EXPECT_FALSE(ChatTemplate::Parse(std::string(2 << 20, 'x')).ok());
}

// Kilobytes of "VmHWM" and similar.
int64_t OfThisProcess(const std::string& name) {
    std::ifstream lines("/proc/self/status");
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1));
    }
    return -1;
}

int64_t ThreadCpuMs() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

const std::string kForEver = "{% for i in range(100000) %}{% for j in range(100000) %}";
const std::string kEnd = "{% endfor %}{% endfor %}";

// Any template takes at most 2 s of CPU time and 128 MiB.
TEST(Jinja, HostileTemplatesTakeLittleMemory) {
    const std::string grows = "{% set n = namespace(x='a', y=[1]) %}{% for i in range(64) %}";
    const std::string long_text = "{% set s = 'a b' * 13000000 %}";
    for (const std::string& source :
         {grows + "{% set n.x = n.x ~ n.x %}{% endfor %}",
          grows + "{% set n.y = n.y + n.y %}{% endfor %}",
          grows + "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.y }}",
          kForEver + "{{ 'abc' * 1000 }}" + kEnd, long_text + "{{ s ~ s }}",
          long_text + "{{ s.split('a') }}", long_text + "{{ s.split() }}",
          long_text + "{{ s.rsplit() }}", long_text + "{{ s.rsplit(' ') }}",
          long_text + "{{ s | list }}", long_text + "{{ s | list | sort | join }}",
          long_text + "{{ s | tojson | tojson | tojson }}", long_text + "{{ s | upper | title }}",
          long_text + "{{ s.replace('a', 'aaaaaaaa') }}", long_text + "{{ s.replace('', 'b') }}",
          long_text + "{{ s | indent(8, true) }}{{ s | escape }}{{ s }}",
          std::string("{{ range(100000) | list | map('string') | list | tojson(indent=400) }}"),
          std::string("{% set d = dict() %}{{ [d, range(99999) | list] * 999999 }}")}) {
        std::ofstream("/proc/self/clear_refs") << "5";  // resets VmHWM
        const int64_t before_kb = OfThisProcess("VmRSS"), begin_ms = ThreadCpuMs();
        const auto text = RenderText(source, OneUser("hi"));
        const int64_t used_ms = ThreadCpuMs() - begin_ms;
        EXPECT_FALSE(text.ok()) << source.substr(0, 100);
        EXPECT_LE(used_ms, 2000 * RenderLimits::kSlowness) << source.substr(0, 100);
        if (RenderLimits::kSlowness > 1) continue;  // sanitizers keep freed memory
        EXPECT_LE(OfThisProcess("VmHWM") - before_kb, 128 << 10) << source.substr(0, 100);
    }
}

TEST(Jinja, ProcessorTimeIsLimited) {
    RenderLimits limits;
    limits.cpu_ms = 100 * RenderLimits::kSlowness;
    limits.steps = INT64_MAX;
    limits.made_bytes = SIZE_MAX;
    for (const char* const work : {"", "{% set x = i + j %}", "{% set x = 'a' * 9000000 %}",
                                   "{% set x = 'a b ' * 90000 %}"
                                   "{% set y = x.split() | length %}",
                                   "{% set x = messages | tojson | length %}",
                                   "{% macro m() %}{{ i }}{% endmacro %}{% set x = m() %}",
                                   "{% set x = range(9000) | sort(reverse=true) | first %}"}) {
        const int64_t begin_ms = ThreadCpuMs();
        const auto text = RenderText(kForEver + work + kEnd, OneUser("hi"), limits);
        ASSERT_FALSE(text.ok());
        EXPECT_NE(text.error().message.find("ms of CPU time"), std::string::npos)
            << work << ": " << text.error().message;
        EXPECT_LE(ThreadCpuMs() - begin_ms, 2 * limits.cpu_ms) << work;
    }
}

// Work on a text without creating a value counts by the text's size.
TEST(Jinja, WorkOnLongTextsIsCounted) {
    const std::string long_name(100'000, 'n');
    EXPECT_FALSE(ChatTemplate::Parse("{{ " + long_name + " }}").ok());
    EXPECT_TRUE(ChatTemplate::Parse("{{ " + long_name.substr(0, 1000) + " }}").ok());
    RenderLimits limits;
    limits.steps = 1'000'000;
    for (const std::string work :
         {"s | int", "s | float", "s | int(0, 16)", "'a' | indent(width=s) | length",
          "1 | tojson(separators=(s, s)) | length", "s.count('')",
          "s.removeprefix(s ~ 'x') | length", "s | tojson | length", "[s] | string | length",
          "messages[0][s] is defined"}) {
        const std::string source = "{% set s = '1' * 500000 %}{% for i in range(5000) %}{% if " +
                                   work + " %}{% endif %}{% endfor %}";
        const auto text = RenderText(source, OneUser("hi"), limits);
        ASSERT_FALSE(text.ok()) << work;
        EXPECT_NE(text.error().message.find("more than"), std::string::npos)
            << work << ": " << text.error().message;
    }
}

TEST(Jinja, LimitsAreCounted) {
    const ChatInput input = OneUser("hi");
    const std::string loop = "{% for i in range(1000) %}abc{% endfor %}";
    EXPECT_TRUE(RenderText(loop, input, {.output_bytes = 3000}).ok());
    EXPECT_NE(ErrorOf(loop, input, {.output_bytes = 2999}).message.find("longer than 2999"),
              std::string::npos);
    EXPECT_NE(ErrorOf(loop, input, {.steps = 900}).message.find("more than 900 steps"),
              std::string::npos);
    // Released values do not count as live.
    const std::string passing =
        "{% set n = namespace() %}{% for i in range(100) %}{% set n.x = 'a' * 10000 %}{% endfor %}";
    EXPECT_TRUE(RenderText(passing, input, {.live_bytes = 200'000}).ok());
    EXPECT_FALSE(RenderText(passing, input, {.made_bytes = 200'000}).ok());
}

TEST(Jinja, DeepJsonIsRefused) {
    OrderedJson deep = 1;
    for (int i = 0; i < 5000; ++i) deep = OrderedJson::array({deep});
    ChatInput input = OneUser("hi");
    input.extra = {{"deep", deep}};
    EXPECT_EQ(ErrorOf("x", input).code, ErrorCode::kUsage);
}

TEST(Jinja, InvalidUtf8PassesThrough) {
    const std::string bytes = "a\xFF\xC3(\xE2\x82";
    EXPECT_EQ(Rendered("{{ messages[0].content }}", OneUser(bytes)), bytes);
    EXPECT_EQ(Rendered("{{ messages[0].content | list | join }}", OneUser(bytes)), bytes);
    EXPECT_EQ(Rendered("{{ messages[0].content | length }}", OneUser(bytes)), "6");
    EXPECT_EQ(Rendered("{{ messages[0].content | upper }}", OneUser(bytes)), "A\xFF\xC3(\xE2\x82");
}

TEST(Jinja, TimeComesFromTheInput) {
    ChatInput input = OneUser("hi");
    input.now_s = 1'770'033'600;  // 2 February 2026, noon in UTC
    EXPECT_EQ(Rendered("{{ strftime_now('%Y-%m-%d') }}", input), "2026-02-02");
    EXPECT_EQ(Rendered("{{ strftime_now('') }}", input), "");
}

}  // namespace
}  // namespace weft::chat
