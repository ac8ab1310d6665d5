// Schemas that try to consume time, memory or stack: each is rejected or compiled within limits,
// and the result is still exact.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/gbnf.h"
#include "grammar/json_multiple.h"
#include "grammar/json_schema.h"
#include "grammar/nfa.h"
#include "grammar/repetitions.h"
#include "grammar/schema_keywords.h"
#include "grammar/schema_types.h"
#include "support/grammar_walk.h"

namespace weft::grammar {
namespace {

using HostileJson = nlohmann::ordered_json;

constexpr const char* kTogether = "too large with its references, 'allOf' and 'anyOf'";

void ExpectRefused(const HostileJson& schema, const char* why) {
    for (const bool lenient : {false, true}) {
        std::vector<std::string> notes;
        const auto made = GrammarFromJsonSchema(schema, {.lenient = lenient, .left_out = &notes});
        ASSERT_FALSE(made.ok());
        EXPECT_NE(made.error().message.find(why), std::string::npos) << made.error().message;
        EXPECT_LT(made.error().message.size(), 1000U);
    }
}

bool HostileHolds(const Result<GrammarPtr>& made, const std::string& text) {
    if (!made.ok()) {
        ADD_FAILURE() << made.error().message;
        return false;
    }
    const auto holds = Matches(**made, text);
    EXPECT_TRUE(holds.ok()) << (holds.ok() ? "" : holds.error().message);
    return holds.ok() && *holds;
}

HostileJson ManyNames(size_t count, const std::string& begin) {
    HostileJson names = HostileJson::array();
    for (size_t i = 0; i < count; ++i) names.push_back(begin + std::to_string(i));
    return names;
}

HostileJson ManyProperties(size_t count, const std::string& begin) {
    HostileJson properties = HostileJson::object();
    for (size_t i = 0; i < count; ++i) {
        properties.push_back({begin + std::to_string(i), HostileJson::object()});
    }
    return properties;
}

// The other names differ from a long name within its first characters.
TEST(HostileSchemas, LongNamesBesideOthers) {
    const std::string name(100'000, 'n');
    const auto made =
        GrammarFromJsonSchema({{"type", "object"},
                               {"properties", {{name, {{"const", 1}}}, {"b", {{"const", 2}}}}},
                               {"additionalProperties", {{"const", 3}}}});
    EXPECT_TRUE(HostileHolds(made, "{\"" + name + "\":1,\"b\":2,\"nn\":3,\"c\":3}"));
    EXPECT_FALSE(HostileHolds(made, "{\"" + name + "\":3}"));
    EXPECT_FALSE(HostileHolds(made, "{\"b\":3}"));
    // A name with the same beginning may be the long one.
    EXPECT_FALSE(HostileHolds(made, "{\"" + std::string(64, 'n') + "x\":3}"));
    EXPECT_TRUE(HostileHolds(made, "{\"" + std::string(63, 'n') + "x\":3}"));
}

// A text that references insert at many places counts at each.
TEST(HostileSchemas, TextsByReference) {
    HostileJson schema{{"$ref", "#/$defs/d0"}, {"$defs", HostileJson::object()}};
    for (int i = 0; i < 14; ++i) {
        const HostileJson next{{"$ref", fmt::format("#/$defs/d{}", i + 1)}};
        schema["$defs"][fmt::format("d{}", i)] = {{"allOf", {next, next}}};
    }
    schema["$defs"]["d14"] = {{"const", std::string(200'000, 'x')}};
    ExpectRefused(schema, kTogether);

    // The limit also holds if references are expanded in the grammar.
    HostileJson list{{"prefixItems", HostileJson::array()},
                     {"$defs", {{"long", {{"const", std::string(100'000, 'x')}}}}}};
    for (int i = 0; i < 100; ++i) list["prefixItems"].push_back({{"$ref", "#/$defs/long"}});
    const auto made = GrammarFromJsonSchema(list);
    EXPECT_FALSE(made.ok() && (*made)->size_bytes() > (size_t{100} << 20));
}

TEST(HostileSchemas, ComparisonsAreCounted) {
    HostileJson objects{{"allOf", HostileJson::array()}};
    for (const char* begin : {"a", "b", "c", "d", "e", "f", "g"}) {
        objects["allOf"].push_back(
            {{"type", "object"}, {"properties", ManyProperties(4096, begin)}});
    }
    ExpectRefused(objects, kTogether);
    const auto both = [](const char* key, size_t count) {
        return HostileJson{
            {"allOf", {{{key, ManyNames(count, "a")}}, {{key, ManyNames(count, "b")}}}}};
    };
    ExpectRefused(both("enum", 20'000), kTogether);
    ExpectRefused(both("required", 37'000), kTogether);
    ExpectRefused({{"properties", ManyProperties(9000, "a")},
                   {"propertyNames", {{"enum", ManyNames(3000, "a")}}}},
                  kTogether);
}

// The functions of a request share one budget.
TEST(HostileSchemas, FunctionsShareABudget) {
    HostileJson heavy{{"type", "object"}, {"allOf", HostileJson::array()}};
    for (int i = 0; i < 12; ++i) {
        HostileJson cases = HostileJson::array();
        for (int j = 0; j < 3; ++j) {
            cases.push_back({{"properties", ManyProperties(1, fmt::format("k{}_{}_", i, j))}});
        }
        heavy["allOf"].push_back({{"anyOf", std::move(cases)}});
    }
    const HostileJson text{{"properties", {{"a", {{"type", "string"}}}}}};
    MergeBudget budget;
    EXPECT_EQ(PropertyTypes(text, budget)["a"], TypeNames{"string"});
    (void)PropertyTypes(heavy, budget);
    EXPECT_EQ(budget.nodes, 0U);
    EXPECT_EQ(PropertyTypes(text, budget)["a"].size(), 6U);  // not read: any type
    const HostileJson half{
        {"type", "object"},
        {"allOf", HostileJson(heavy["allOf"].begin(), heavy["allOf"].begin() + 9)}};
    EXPECT_FALSE(GrammarFromCalls(std::vector<CallText>(400, {"", "", half, true}), {}).ok());
}

// The path in a message is cut and does not grow with the depth.
TEST(HostileSchemas, PathsAreBounded) {
    std::string path = "#";
    for (int i = 0; i < 64; ++i) path = SchemaPath(path, std::string(100'000, 'k'));
    EXPECT_LT(path.size(), 1000U);
    HostileJson schema{{"type", "strnig"}};
    for (int i = 0; i < 40; ++i) {
        schema = {{"properties", {{std::string(5000, 'k'), schema}}}};
    }
    ExpectRefused(schema, "'type' must be null");
}

// An expression that is too large costs the budget the work to detect that.
TEST(HostileSchemas, AutomataThatFailAreCharged) {
    GrammarBuilder builder;
    const auto rule = builder.AddRule("large");
    auto expr = builder.Text("ab");
    for (int i = 0; i < 4; ++i) expr = builder.Repeat(expr, 100, 100);
    builder.Define(rule, expr);
    TextBudget budget;
    const uint64_t before = budget.steps;
    EXPECT_FALSE(TextAutomaton::Make(builder, rule, budget).ok());
    EXPECT_GE(before - budget.steps, Nfa::kMostEdges);

    TextBudget multiples;
    EXPECT_TRUE(MultiplesOf(0.000999, multiples).ok());
    EXPECT_LT(multiples.steps, before - 7 * 999);
    TextBudget spent{.steps = 1000};
    const auto refused = MultiplesOf(7, spent);
    EXPECT_TRUE(refused.ok());
    const auto none = MultiplesOf(1999, spent);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kUnsupported);
}

// Matching stops if stacks overflow: if many rules call many others, not every pair takes time.
TEST(HostileSchemas, OverflowStops) {
    std::string gbnf = "root ::= (";
    for (int i = 0; i < 400; ++i) gbnf += fmt::format("{}v{}", i > 0 ? " | " : "", i);
    gbnf += ") \"z\"\n";
    for (int i = 0; i < 400; ++i) gbnf += fmt::format("v{} ::= s \"{}\"\n", i, i);
    gbnf += "s ::= ";
    for (int i = 0; i < 8000; ++i) gbnf += fmt::format("{}w{}", i > 0 ? " | " : "", i);
    gbnf += "\n";
    for (int i = 0; i < 8000; ++i) gbnf += fmt::format("w{} ::= \"{}\" \"x\"\n", i, i);
    const auto made = GrammarFromGbnf(gbnf);
    if (!made.ok()) return;  // rejected as too large, which is fine too
    Stacks stacks(**made);
    stacks.Load(std::vector<Stacks::Frame>{{0, 0, 0}});
    stacks.Add({(*made)->start(), Stacks::kBottom});
    EXPECT_TRUE(stacks.overflow());
    EXPECT_LT(stacks.steps(), 100'000U);
}

bool TimesHold(uint32_t least, uint32_t most, uint32_t written, uint32_t times) {
    GrammarBuilder builder;
    Repetitions repetitions(builder.Text("ab"), written, builder);
    const auto root = builder.AddRule("root");
    builder.Define(root, builder.Sequence({repetitions.Between(least, most), builder.Text("!")}));
    std::string text;
    for (uint32_t i = 0; i < times; ++i) text += "ab";
    return HostileHolds(builder.Build(root), text + "!");
}

// Shared rules are equivalent to expanded repetitions.
TEST(Repetitions, AreExact) {
    constexpr uint32_t kEndless = GrammarBuilder::kNoLimit;
    const std::pair<uint32_t, uint32_t> bounds[] = {
        {0, 15},      {0, 16},      {0, 17},      {0, 31},      {0, 1023},      {0, 1024},
        {0, 1025},    {0, 4095},    {0, 5000},    {3, 3},       {16, 16},       {17, 40},
        {1023, 1025}, {1024, 1024}, {5000, 5000}, {4097, 9000}, {37, kEndless}, {2100, kEndless}};
    for (const auto& [least, most] : bounds) {
        for (const uint32_t times : {least - 1, least, least + 1, (least + most) / 2, most - 1,
                                     most, most + 1, 15U, 16U, 17U, 1023U, 1024U, 1025U}) {
            if (times > 10'000) continue;
            const bool expected = least <= times && times <= most;
            for (const uint32_t written : {0U, 100U, 10'000U}) {
                EXPECT_EQ(TimesHold(least, most, written, times), expected)
                    << least << " to " << most << ": " << times << " where " << written;
            }
        }
    }
}

// High length limits on many strings: far within one schema's limits, and exact.
TEST(Repetitions, ManyLongStringsInOneSchema) {
    HostileJson schema{{"type", "object"}, {"properties", HostileJson::object()}};
    for (int i = 0; i < 60; ++i) {
        schema["properties"][fmt::format("p{}", i)] = {
            {"type", "string"}, {"minLength", i}, {"maxLength", 2000 + i}};
    }
    schema["properties"]["z"] = {{"type", "string"}, {"maxLength", 100'000}};
    schema["properties"]["l"] = {{"type", "array"}, {"items", {{"const", 1}}}, {"maxItems", 9999}};
    const auto made = GrammarFromJsonSchema(schema);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto text = [](const char* name, size_t size) {
        return fmt::format("{{\"{}\":\"{}\"}}", name, std::string(size, 'x'));
    };
    EXPECT_TRUE(HostileHolds(made, text("p59", 2059)));
    EXPECT_FALSE(HostileHolds(made, text("p59", 2060)));
    EXPECT_TRUE(HostileHolds(made, text("p59", 59)));
    EXPECT_FALSE(HostileHolds(made, text("p59", 58)));
    EXPECT_TRUE(HostileHolds(made, text("p0", 2000)));
    EXPECT_FALSE(HostileHolds(made, text("p0", 2001)));
    EXPECT_TRUE(HostileHolds(made, text("z", 100'000)));
    EXPECT_FALSE(HostileHolds(made, text("z", 100'001)));
    const auto list = [](size_t count) {
        std::string items = "{\"l\":[1";
        for (size_t i = 1; i < count; ++i) items += ",1";
        return items + "]}";
    };
    EXPECT_TRUE(HostileHolds(made, list(9999)));
    EXPECT_FALSE(HostileHolds(made, list(10'000)));
    EXPECT_LT((*made)->size_bytes(), size_t{60} << 20);

    // Masks allow exactly the texts that may follow.
    const auto trie = CrossingTokens();
    const auto fresh = Matcher::Make(*made, trie);
    ASSERT_TRUE(fresh.ok()) << fresh.error().message;
    Matcher matcher = *fresh;
    std::vector<uint32_t> bits(trie->mask_words());
    for (int i = 0; i < 40; ++i) {
        ExpectMask(matcher, *trie, fmt::format("token {}", i));
        ASSERT_TRUE(matcher.Allowed(bits).ok());
        const auto tokens = TokensOf(bits);
        ASSERT_FALSE(tokens.empty());
        ASSERT_TRUE(matcher.Accept(tokens[tokens.size() / 2]).ok());
        if (matcher.Ended()) break;
    }
}

}  // namespace
}  // namespace weft::grammar
