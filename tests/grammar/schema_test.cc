// Grammars from JSON schemas: compared with an independent validator (golden file of
// tools/make_schema_golden.py), and random generations checked by a simple validator here.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "grammar/json_schema.h"
#include "grammar/regex_grammar.h"
#include "support/grammar_walk.h"
#include "support/paths.h"

namespace weft::grammar {
namespace {

using Json = nlohmann::ordered_json;

Json GoldenSchemas() {
    const auto text = ReadTextFile(support::TestData("/schema_golden.json"));
    EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().message);
    return text.ok() ? Json::parse(*text) : Json::array();
}

GrammarPtr Made(const Json& schema) {
    auto made = GrammarFromJsonSchema(schema);
    EXPECT_TRUE(made.ok()) << schema << ": " << (made.ok() ? "" : made.error().message);
    return made.ok() ? *made : nullptr;
}

bool SchemaHolds(const GrammarPtr& grammar, const std::string& text) {
    const auto holds = Matches(*grammar, text);
    EXPECT_TRUE(holds.ok()) << (holds.ok() ? "" : holds.error().message);
    return holds.ok() && *holds;
}

// Draft 2020-12, as far as used here; formats by the given regular expressions.
class Validator {
  public:
    explicit Validator(const Json& root) : root_(root) {}

    bool Valid(const Json& value, const Json& schema) const {
        if (schema.is_boolean()) return schema.get<bool>();
        for (const auto& [key, rule] : schema.items()) {
            if (!Keyword(value, schema, key, rule)) return false;
        }
        return true;
    }

  private:
    static bool IsType(const Json& value, const std::string& type) {
        if (type == "integer") {
            return value.is_number() && value.get<double>() == std::floor(value.get<double>());
        }
        if (type == "number") return value.is_number();
        return type == value.type_name();
    }

    static double Size(const Json& value) {
        if (!value.is_string()) return static_cast<double>(value.size());
        double points = 0;
        for (const char c : value.get<std::string>()) points += (c & 0xC0) == 0x80 ? 0 : 1;
        return points;
    }

    size_t Count(const Json& value, const Json& schemas) const {
        size_t count = 0;
        for (const Json& schema : schemas) count += Valid(value, schema) ? 1 : 0;
        return count;
    }

    bool Keyword(const Json& value, const Json& schema, const std::string& key,
                 const Json& rule) const {
        if (key == "type") {
            if (rule.is_string()) return IsType(value, rule);
            return std::any_of(rule.begin(), rule.end(),
                               [&](const Json& type) { return IsType(value, type); });
        }
        if (key == "const") return value == rule;
        if (key == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
        if (key == "$ref") {
            return Valid(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))));
        }
        if (key == "anyOf") return Count(value, rule) > 0;
        if (key == "oneOf") return Count(value, rule) == 1;
        if (key == "allOf") return Count(value, rule) == rule.size();
        if (value.is_number()) {
            const double number = value.get<double>();
            if (key == "minimum") return number >= rule.get<double>();
            if (key == "maximum") return number <= rule.get<double>();
            if (key == "exclusiveMinimum") return number > rule.get<double>();
            if (key == "exclusiveMaximum") return number < rule.get<double>();
        }
        if (value.is_string()) {
            if (key == "minLength") return Size(value) >= rule.get<double>();
            if (key == "maxLength") return Size(value) <= rule.get<double>();
        }
        if (value.is_array()) return Array(value, schema, key, rule);
        return !value.is_object() || Object(value, schema, key, rule);
    }

    bool Array(const Json& value, const Json& schema, const std::string& key,
               const Json& rule) const {
        if (key == "minItems") return Size(value) >= rule.get<double>();
        if (key == "maxItems") return Size(value) <= rule.get<double>();
        const size_t first = schema.value("prefixItems", Json::array()).size();
        for (size_t i = 0; i < value.size(); ++i) {
            if (key == "prefixItems" && i < first && !Valid(value[i], rule[i])) return false;
            if (key == "items" && i >= first && !Valid(value[i], rule)) return false;
        }
        return true;
    }

    bool Object(const Json& value, const Json& schema, const std::string& key,
                const Json& rule) const {
        if (key == "required") {
            return std::all_of(rule.begin(), rule.end(), [&](const Json& name) {
                return value.contains(name.get<std::string>());
            });
        }
        const Json known = schema.value("properties", Json::object());
        for (const auto& [name, inner] : value.items()) {
            if (key == "properties" && rule.contains(name) && !Valid(inner, rule[name])) {
                return false;
            }
            if (key == "additionalProperties" && !known.contains(name) && !Valid(inner, rule)) {
                return false;
            }
        }
        return true;
    }

    const Json& root_;
};

TEST(JsonSchema, GoldenVerdicts) {
    size_t made = 0, refused = 0, open = 0;
    for (const Json& entry : GoldenSchemas()) {
        const GrammarPtr grammar = Made(entry["schema"]);
        ASSERT_NE(grammar, nullptr);
        for (const std::string text : entry["made"]) {
            EXPECT_TRUE(SchemaHolds(grammar, text)) << entry["schema"] << " refuses " << text;
            ++made;
        }
        for (const std::string text : entry["invalid"]) {
            EXPECT_FALSE(SchemaHolds(grammar, text)) << entry["schema"] << " lets through " << text;
            ++refused;
        }
        for (const std::string text : entry["valid"]) open += SchemaHolds(grammar, text) ? 1 : 0;
    }
    EXPECT_GT(made, 250U);
    EXPECT_GT(refused, 500U);
    EXPECT_GT(open, 100U);  // the grammar is narrower than the schema, but not by much
}

// JSON parsers merge duplicate members, so a validator would not see them.
void ExpectNamesOnce(const std::string& text) {
    std::vector<std::vector<std::string>> open;
    const auto look = [&](int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) open.emplace_back();
        if (event == Json::parse_event_t::object_end) open.pop_back();
        if (event == Json::parse_event_t::key) {
            const auto name = parsed.get<std::string>();
            EXPECT_EQ(std::count(open.back().begin(), open.back().end(), name), 0) << text;
            open.back().push_back(name);
        }
        return true;
    };
    EXPECT_FALSE(Json::parse(text, look, false).is_discarded());
}

TEST(JsonSchema, RandomGenerationsAreValid) {
    std::mt19937 random(21);
    const auto trie = CrossingTokens();
    for (const Json& entry : GoldenSchemas()) {
        const Json& schema = entry["schema"];
        const GrammarPtr grammar = Made(schema);
        ASSERT_NE(grammar, nullptr);
        const auto fresh = Matcher::Make(grammar, trie);
        ASSERT_TRUE(fresh.ok());
        for (int round = 0; round < 12; ++round) {
            const auto text = RandomText(*fresh, *trie, random, 30);
            ASSERT_TRUE(text.ok()) << schema << ": " << text.error().message;
            const Json value = Json::parse(*text, nullptr, false);
            ASSERT_FALSE(value.is_discarded()) << schema << " made " << *text;
            EXPECT_TRUE(Validator(schema).Valid(value, schema)) << schema << " made " << *text;
            // A name may repeat only where additional properties are allowed.
            if (!schema.contains("additionalProperties")) ExpectNamesOnce(*text);
        }
    }
}

// Tokens of a small vocabulary like SmolLM2's, or like SentencePiece's.
std::shared_ptr<const TokenTrie> TrainedTokens(const std::string& name) {
    const auto text = ReadTextFile(fmt::format("{}/tokenizer/{}.json", support::TestData(), name));
    EXPECT_TRUE(text.ok());
    const auto vocabulary = nlohmann::json::parse(*text)["vocabulary"];
    tokenizer::TokenizerData data;
    data.model = vocabulary["model"];
    data.pre = vocabulary.value("pre", "");
    data.tokens = vocabulary["tokens"].get<std::vector<std::string>>();
    data.types = vocabulary["types"].get<std::vector<int32_t>>();
    data.merges = vocabulary.value("merges", std::vector<std::string>());
    data.scores = vocabulary.value("scores", std::vector<float>());
    data.eos = vocabulary.value("eos", -1);
    for (size_t id = 0; id < data.types.size() && data.eos < 0; ++id) {
        if (data.types[id] == 3) data.eos = static_cast<int32_t>(id);
    }
    return TokenTrie::Make(*MadeTokenizer(std::move(data)));
}

TEST(JsonSchema, TrainedVocabularies) {
    std::mt19937 random(41);
    const char* schemas[] = {
        R"({"type":"object","properties":{"name":{"type":"string"},"tags":{"type":"array","items":
            {"type":"string","maxLength":7}},"n":{"type":"number"}},"required":["name","tags"]})",
        R"({"type":"string","minLength":3,"maxLength":40})", R"({"type":"object"})",
        R"({"type":"string","pattern":"^(the|[a-z]{3,9}) .{2,12}$"})"};
    for (const char* vocabulary : {"smollm", "spm"}) {
        const auto trie = TrainedTokens(vocabulary);
        ASSERT_FALSE(trie->ends().empty());
        for (const char* text : schemas) {
            const Json schema = Json::parse(text);
            const auto fresh = Matcher::Make(Made(schema), trie);
            ASSERT_TRUE(fresh.ok());
            for (int round = 0; round < 4; ++round) {
                Matcher matcher = *fresh;
                std::string before;
                for (int step = 0; step < 20 && !matcher.Ended(); ++step) {
                    ExpectMask(matcher, *trie, before);
                    std::vector<uint32_t> bits(trie->mask_words());
                    ASSERT_TRUE(matcher.Allowed(bits).ok());
                    std::vector<int32_t> tokens = TokensOf(bits);
                    std::erase_if(tokens, [&](int32_t id) { return trie->IsEnd(id); });
                    const int32_t token = tokens[random() % tokens.size()];
                    ASSERT_TRUE(matcher.Accept(token).ok());
                    before += trie->Bytes(token);
                }
                const auto whole = RandomText(*fresh, *trie, random, 20);
                ASSERT_TRUE(whole.ok()) << whole.error().message;
                const Json value = Json::parse(*whole, nullptr, false);
                ASSERT_FALSE(value.is_discarded()) << *whole;
                EXPECT_TRUE(Validator(schema).Valid(value, schema)) << *whole;
            }
        }
    }
}

TEST(JsonSchema, AnyObject) {
    const auto grammar = JsonObjectGrammar();
    ASSERT_TRUE(grammar.ok());
    for (const char* text : {"{}", "{\"a\":1}", "{\"a\": [1, {\"b\":null}], \"c\": \"\\u00e9\\n\"}",
                             "{\"\":-0.5e+10, \"x\":true}", "{\"a\":\"\\ud83d\\ude00\"}"}) {
        EXPECT_TRUE(SchemaHolds(*grammar, text)) << text;
    }
    for (const char* text :
         {"", "[]", "{", "{\"a\"}", "{\"a\":1,}", "{a:1}", "{\"a\":01}", "{\"a\":1}}", "{\"a\":.5}",
          "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}", "{\"a\":\"\\ud83d\"}", "{\"a\":  1}", " {}",
          "{\"a\":+1}", "{\"a\":1.}", "{\"a\":NaN}"}) {
        EXPECT_FALSE(SchemaHolds(*grammar, text)) << text;
    }
    std::mt19937 random(5);
    const auto trie = CrossingTokens();
    const auto fresh = Matcher::Make(*grammar, trie);
    ASSERT_TRUE(fresh.ok());
    for (int round = 0; round < 100; ++round) {
        const auto text = RandomText(*fresh, *trie, random, 60);
        ASSERT_TRUE(text.ok()) << text.error().message;
        EXPECT_TRUE(Json::parse(*text, nullptr, false).is_object()) << *text;
    }
}

TEST(JsonSchema, OrderAndOptionalProperties) {
    const GrammarPtr grammar = Made(Json::parse(R"({"properties":{"z":{"type":"integer"},
        "a":{"type":"integer"},"m":{"type":"integer"}},"required":["a"]})"));
    for (const char* text :
         {R"({"a":1})", R"({"z":1,"a":2})", R"({"a":1,"m":2})", R"({"z": 1, "a": 2, "m": 3})"}) {
        EXPECT_TRUE(SchemaHolds(grammar, text)) << text;
    }
    for (const char* text : {"{}", R"({"z":1})", R"({"a":1,"z":2})", R"({"a":1,})", R"({,"a":1})",
                             R"({"a":1 ,"m":2})", R"({"a":1,"b":2})", R"({"a":1,"a":1})"}) {
        EXPECT_FALSE(SchemaHolds(grammar, text)) << text;
    }
}

// A declared name cannot repeat as an additional one, in any spelling.
TEST(JsonSchema, AdditionalNamesDiffer) {
    const GrammarPtr grammar = Made(Json::parse(R"({"properties":{"ab":{"type":"integer"},
        "abc":{"type":"integer"},"\"q":{"type":"integer"}},
        "additionalProperties":{"type":"boolean"}})"));
    for (const char* text : {R"({"ab":1,"a":true})", R"({"abcd":true,"b":false})", R"({"":true})",
                             R"({"ab":1,"abc":2,"abd":true})", R"({"\"q":1})"}) {
        EXPECT_TRUE(SchemaHolds(grammar, text)) << text;
    }
    for (const char* text : {R"({"ab":true})", R"({"abc":true})", R"({"\u0061b":true})",
                             R"({"ab":1,"ab":true})", R"({"\"q":true})"}) {
        EXPECT_FALSE(SchemaHolds(grammar, text)) << text;
    }
}

TEST(JsonSchema, NumbersBetweenBounds) {
    std::mt19937 random(31);
    const auto number = [&](double size) {
        const double made = (static_cast<double>(random() % 2'000'001) / 1e6 - 1) * size;
        return std::round(made * 1000) / 1000;
    };
    for (int round = 0; round < 150; ++round) {
        const double size = std::pow(10.0, random() % 12);
        double low = number(size), high = number(size);
        if (round % 3 == 0) low = std::floor(low), high = std::floor(high);
        if (low > high) std::swap(low, high);
        if (high - low < 0.01) continue;
        const bool open = random() % 2 == 0;
        Json schema = {{"type", round % 2 == 0 ? "number" : "integer"}};
        if (round % 5 != 1) schema[open ? "exclusiveMinimum" : "minimum"] = low;
        if (round % 5 != 2) schema[open ? "exclusiveMaximum" : "maximum"] = high;
        const auto grammar = GrammarFromJsonSchema(schema);
        if (!grammar.ok()) {  // no integer in between
            EXPECT_NE(grammar.error().message.find("no integer lies"), std::string::npos);
            EXPECT_LT(std::floor(high) - std::ceil(low), 2);
            continue;
        }
        for (int i = 0; i < 60; ++i) {
            double value = i % 4 == 0   ? low
                           : i % 4 == 1 ? high
                                        : number(i % 4 == 2 ? 20 : 2 * size);
            if (i % 3 == 0) value += static_cast<double>(random() % 3) * 0.001 - 0.001;
            if (i % 5 == 0) value = std::floor(value);
            std::string text = fmt::format("{:.3f}", value);
            if (text.starts_with("-0.000")) continue;
            if (i % 2 == 0) {
                while (text.back() == '0') text.pop_back();
                if (text.back() == '.') text.pop_back();
            }
            const Json parsed = Json::parse(text);
            bool expected = Validator(schema).Valid(parsed, schema);
            // An integer has no decimal point here.
            if (round % 2 == 1 && text.find('.') != text.npos) expected = false;
            EXPECT_EQ(SchemaHolds(*grammar, text), expected) << schema << " on " << text;
        }
    }
}

// A bound may have any digits: numbers beyond it are refused, and those with six decimals within it
// are not.
TEST(JsonSchema, BoundsOfAnyDigits) {
    std::mt19937 random(3);
    const auto any = [&] {
        const double part = (static_cast<double>(random()) + 0.1) / 4294967296.0;
        return (part - 0.5) * std::pow(10.0, static_cast<int>(random() % 22) - 16);
    };
    for (int round = 0; round < 400; ++round) {
        const auto [low, high] = std::minmax({any(), any()});
        const bool low_open = random() % 2 == 0, high_open = random() % 2 == 0;
        const Json schema = {{"type", "number"},
                             {low_open ? "exclusiveMinimum" : "minimum", low},
                             {high_open ? "exclusiveMaximum" : "maximum", high}};
        const auto grammar = GrammarFromJsonSchema(schema);
        if (!grammar.ok()) {
            EXPECT_NE(grammar.error().message.find("no number"), std::string::npos) << schema;
            EXPECT_LT(high - low, 2e-12 * std::max(1.0, std::fabs(low))) << schema;
            continue;
        }
        for (int i = 0; i < 60; ++i) {
            const double bound = i % 2 == 0 ? low : high;
            const auto digits = static_cast<int>(random() % 16);
            const double step = std::pow(10.0, -digits) * (static_cast<int>(random() % 3) - 1);
            const std::string text = fmt::format("{:.{}f}", bound + step, digits);
            const double value = std::stod(text);
            const bool within = (low_open ? value > low : value >= low) &&
                                (high_open ? value < high : value <= high);
            const bool holds = SchemaHolds(*grammar, text);
            EXPECT_TRUE(within || !holds) << schema << text;
            if (digits > 6 || text.starts_with("-0.000000")) continue;
            EXPECT_TRUE(holds || !within || value == 0) << schema << text;
        }
    }
}

// A wide bound does not limit the decimals of the numbers within it.
TEST(JsonSchema, WideBoundsAllowDecimals) {
    const char* const values[] = {"0.5",      "12.5", "0.000001", "12345.5",
                                  "99999.25", "-1.5", "-0.25"};
    for (const double bound : {1e9, 2147483647.0, 9999999999.99, 1e12, 9007199254740991.0, 1e17}) {
        for (const char* low : {"minimum", "exclusiveMinimum"}) {
            for (const char* high : {"maximum", "exclusiveMaximum"}) {
                for (const double least : {-bound, -1.5, 0.0, 0.25}) {
                    const Json schema = {{"type", "number"}, {low, least}, {high, bound}};
                    const GrammarPtr grammar = Made(schema);
                    ASSERT_NE(grammar, nullptr);
                    for (const char* text : values) {
                        EXPECT_EQ(SchemaHolds(grammar, text),
                                  Validator(schema).Valid(Json::parse(text), schema))
                            << schema << text;
                    }
                }
            }
        }
    }
    // As doubles, these are the bound.
    for (const auto& [bound, text] : std::vector<std::pair<double, std::string>>{
             {1e15, "999999999999999.99"}, {1e11, "99999999999.999999"}, {1e17, "1e17"}}) {
        const Json schema = {{"type", "number"}, {"exclusiveMaximum", bound}};
        EXPECT_FALSE(SchemaHolds(Made(schema), text)) << text;
    }
}

TEST(JsonSchema, RejectsByPathAndKeyword) {
    const std::pair<const char*, const char*> cases[] = {
        {R"({"properties":{"a":{"not":{"type":"string"}}}})",
         "#/properties/a: the keyword 'not' is not supported"},
        {R"({"type":"array","items":{"type":"number","multipleOf":20002}})",
         "#/items: 'multipleOf'"},
        {R"({"type":"array","uniqueItems":true})", "'uniqueItems'"},
        {R"({"type":"array","contains":{}})", "'contains'"},
        {R"({"type":"object","patternProperties":{}})", "'patternProperties'"},
        {R"({"type":"object","minProperties":1})", "'minProperties'"},
        {R"({"properties":{"a":{}},"propertyNames":{"minLength":1}})", "'propertyNames'"},
        {R"({"type":"object","dependentRequired":{}})", "'dependentRequired'"},
        {R"({"if":{},"then":{}})", "'if'"},
        {R"({"type":"string","minLenght":3})", "'minLenght'"},
        {R"({"$dynamicRef":"#x"})", "'$dynamicRef'"},
        {R"({"type":"string","nullable":7})", "'nullable' must be true or false"},
        {R"({"type":"strnig"})", "'type' must be null"},
        {R"({"type":[]})", "empty list"},
        {R"({"$ref":"other.json"})", "only references within this schema"},
        {R"({"$ref":"#/$defs/x"})", "does not exist in the schema"},
        {R"({"$ref":"#"})", "left-recursive: # -> #"},
        {R"({"allOf":[{"$ref":"#"}]})", "deeper than"},
        {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no finite text"},
        {R"x({"type":"string","pattern":"(?=a)"})x", "#: 'pattern': "},
        {R"({"type":"string","pattern":"^a$","minLength":2})", "no text satisfies its 'pattern'"},
        {R"({"type":"string","minLength":-1})", "'minLength' is not an integer"},
        {R"({"type":"string","minLength":3,"maxLength":2})", "above 'maxLength'"},
        {R"({"type":"integer","minimum":3.2,"maximum":3.8})", "no integer lies"},
        {R"({"type":"number","minimum":3,"exclusiveMaximum":3})", "no number lies"},
        {R"({"type":"array","minItems":3,"maxItems":2})", "above 'maxItems'"},
        {R"({"items":[{}],"prefixItems":[{}]})", "'items' as a list cannot be combined"},
        {R"({"enum":[1,2],"type":"string"})", "no value satisfies its 'enum'"},
        {R"({"enum":["a"],"minLength":1})", "beside 'enum'"},
        {R"({"properties":{},"required":["x"],"additionalProperties":false})", "'x' is required"},
        {R"({"properties":{"a":false},"required":["a"]})", "no value is valid"},
        {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "alternatives 0 and 1"},
        {R"({"oneOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"a":{},"b":{}}}]})",
         "use 'anyOf'"},
        {R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "no value satisfies"},
        {R"({"allOf":[{"type":"string","pattern":"a"},{"pattern":"b"}]})",
         "combining two different 'pattern'"},
        {"7", "expected an object, true or false"},
        {"false", "no value is valid"},
        {"{", "not valid JSON"}};
    for (const auto& [schema, words] : cases) {
        const auto made = GrammarFromJsonSchemaText(schema);
        ASSERT_FALSE(made.ok()) << schema;
        EXPECT_EQ(made.error().code, ErrorCode::kUsage);
        EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
    }
}

TEST(JsonSchema, HostileSizes) {
    std::string deep;
    for (int i = 0; i < 3000; ++i) deep += "{\"items\":";
    EXPECT_FALSE(GrammarFromJsonSchemaText(deep).ok());
    std::string wide = "{\"properties\":{";
    for (int i = 0; i < 9000; ++i) wide += fmt::format("\"p{}\":{{}},", i);
    wide.back() = '}';
    EXPECT_FALSE(GrammarFromJsonSchemaText(wide + "}").ok());
    // Doubles at each step.
    Json doubling = {{"$ref", "#/$defs/d0"}, {"$defs", Json::object()}};
    for (int i = 0; i < 40; ++i) {
        const std::string next = fmt::format("#/$defs/d{}", i + 1);
        doubling["$defs"][fmt::format("d{}", i)] = {
            {"allOf", {{{"$ref", next}}, {{"$ref", next}}}}};
    }
    doubling["$defs"]["d40"] = {{"type", "string"}};
    EXPECT_FALSE(GrammarFromJsonSchema(doubling).ok());
    EXPECT_FALSE(
        GrammarFromJsonSchema(Json::parse(R"({"type":"string","minLength":100001})")).ok());
    // Many optional properties stay small.
    std::string many = "{\"properties\":{";
    for (int i = 0; i < 400; ++i) many += fmt::format("\"p{}\":{{\"type\":\"string\"}},", i);
    many.back() = '}';
    const auto made = GrammarFromJsonSchemaText(many + "}");
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(*Matches(**made, R"({"p3":"a", "p399":"b"})"));
    EXPECT_FALSE(*Matches(**made, R"({"p4":"a", "p3":"b"})"));
}

// Qwen-Coder's and Gemma 4's formats of arguments.
const CallPairs kTagged{.before_key = "<p=",
                        .before_value = ">\n",
                        .behind_value = "\n</p>\n",
                        .texts = CallPairs::Texts::kBare};
const CallPairs kQuotedPairs{
    .before_value = ":", .between = ",", .texts = CallPairs::Texts::kQuoted, .quote = "<|>"};

TEST(CallGrammar, JsonOfSeveralFunctions) {
    const Json referring = Json::parse(
        R"({"type":"object","properties":{"at":{"$ref":"#/$defs/day"}},"required":["at"],
            "$defs":{"day":{"enum":["Monday","Sunday"]}}})");
    const auto made =
        GrammarFromCalls({{"one\">", "]", Json{{"type", "object"}}}, {"two:", "!", referring}}, {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(SchemaHolds(*made, R"(one">{"a": 1}])"));
    EXPECT_TRUE(SchemaHolds(*made, R"(two:{"at": "Sunday"}!)"));
    EXPECT_FALSE(SchemaHolds(*made, R"(two:{"at": "Friday"}!)"));
    EXPECT_FALSE(SchemaHolds(*made, R"(two:{"at": "Sunday"}])"));
    EXPECT_FALSE(SchemaHolds(*made, R"(one">[]])"));
}

TEST(CallGrammar, TaggedPairs) {
    const Json schema = Json::parse(
        R"({"type":"object","required":["city"],"properties":{
            "city":{"type":"string"},"days":{"type":"integer"},"unit":{"enum":["C","F"]},
            "deep":{"type":"object","properties":{"x":{"type":"string"}},"required":["x"]},
            "on":{"type":"string","format":"date"},"note":{"type":"string","maxLength":3}}})");
    const auto made = GrammarFromCalls({{"f(", ")", schema}}, kTagged);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto holds = [&](const std::string& key, const std::string& value) {
        const std::string city = "<p=city>\nUlm\n</p>\n";
        return SchemaHolds(*made, "f(" + city + "<p=" + key + ">\n" + value + "\n</p>\n)");
    };
    EXPECT_TRUE(SchemaHolds(*made, "f(<p=city>\nA \"b\" <c>\n</pp>\n</p>\n)"));
    EXPECT_TRUE(SchemaHolds(*made, "f(<p=city>\n<<p>S\xC3\xA3o</.\n</p>\n)"));
    EXPECT_FALSE(SchemaHolds(*made, "f(<p=city>\nUlm</p>\nBonn\n</p>\n)"));
    EXPECT_FALSE(SchemaHolds(*made, "f()")) << "required";
    EXPECT_TRUE(holds("days", "-12"));
    EXPECT_FALSE(holds("days", "\"12\""));
    EXPECT_TRUE(holds("unit", "F"));
    EXPECT_FALSE(holds("unit", "K"));
    EXPECT_TRUE(holds("deep", R"({"x": "</p>"})"));
    EXPECT_FALSE(holds("deep", R"({"y": "z"})"));
    EXPECT_TRUE(holds("on", "2026-02-28"));
    EXPECT_FALSE(holds("on", "2026-02-30"));
    EXPECT_TRUE(holds("note", "abc"));
    EXPECT_FALSE(holds("note", "abcd"));
    EXPECT_FALSE(holds("other", "1"));
}

TEST(CallGrammar, QuotedPairs) {
    const Json schema = Json::parse(
        R"({"properties":{"city":{"type":["string","null"]},"days":{"type":"integer"}}})");
    const auto made = GrammarFromCalls({{"f{", "}", schema}}, kQuotedPairs);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(SchemaHolds(*made, "f{city:<|>a, <b> |<|>,days:3}"));
    EXPECT_TRUE(SchemaHolds(*made, "f{city:null}"));
    EXPECT_TRUE(SchemaHolds(*made, "f{}"));
    EXPECT_FALSE(SchemaHolds(*made, "f{city:Ulm}"));
    EXPECT_FALSE(SchemaHolds(*made, "f{city:<|>a<|>b<|>}"));
    EXPECT_FALSE(SchemaHolds(*made, "f{days:3,city:<|>a<|>}"));
}

TEST(CallGrammar, CallOrOtherAnswer) {
    const CallText form = {
        "", "", Json::parse(R"({"properties":{"sum":{"enum":[1,2]}},"required":["sum"]})")};
    const std::vector<CallText> calls = {
        {"<c>f", "</c>", Json::parse(R"({"properties":{"n":{"type":"integer"}}})")}};
    const auto made = GrammarFromCalls(calls, {}, nullptr, &form);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_TRUE(SchemaHolds(*made, R"(<c>f{"n": 12}</c>)"));
    EXPECT_TRUE(SchemaHolds(*made, R"({"sum": 2})"));
    for (const char* text : {R"({"n": 12})", R"(<c>f{"sum": 2}</c>)", R"({"sum": 3})", "<c>f</c>",
                             R"({"sum": 1}<c>f{}</c>)"}) {
        EXPECT_FALSE(SchemaHolds(*made, text)) << text;
    }
    const CallText wrong = {"", "", Json::parse(R"({"type":"sum"})")};
    EXPECT_FALSE(GrammarFromCalls(calls, {}, nullptr, &wrong).ok());
}

// Arguments that pairs cannot express are rejected, not changed.
TEST(CallGrammar, RejectsInexpressiblePairs) {
    for (const char* schema :
         {R"({"type":"array"})", R"({"type":"object","additionalProperties":{"type":"string"}})",
          R"({"properties":{"a b":{"type":"string"}}})",
          R"({"properties":{"a-b":{"type":"string"}}})", R"({"$ref":"#"})",
          R"({"properties":{"a":{"type":"string","pattern":"^[^a]*$"}}})",
          R"({"properties":{"a":{"enum":["x","</p>"]}}})", R"({"properties":{"a":{"const":" x"}}})",
          R"({"properties":{"a":{"const":""}}})"}) {
        EXPECT_FALSE(GrammarFromCalls({{"", "", Json::parse(schema)}}, kTagged).ok()) << schema;
    }
    for (const char* end : {"", "\n", "</p></p>", "\xE2\x96\x81"}) {
        CallPairs pairs = kTagged;
        pairs.behind_value = end;
        EXPECT_FALSE(GrammarFromCalls({{"", "", Json::object()}}, pairs).ok()) << end;
    }
}

}  // namespace
}  // namespace weft::grammar
