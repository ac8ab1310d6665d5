// Schemas of clients (pydantic, zod, OpenAPI 3.0, draft 7): exact support, keywords skipped unless
// strict, and formats.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "grammar/json_schema.h"
#include "support/grammar_walk.h"

namespace weft::grammar {
namespace {

using Notes = std::vector<std::string>;

struct Verdicts {
    const char* schema;
    std::vector<const char*> holds, refused;
};

// The grammar gives exactly these verdicts, strict or lenient.
void ExpectVerdicts(const Verdicts& verdicts, bool lenient) {
    Notes notes;
    const auto made =
        GrammarFromJsonSchemaText(verdicts.schema, {.lenient = lenient, .left_out = &notes});
    ASSERT_TRUE(made.ok()) << verdicts.schema << ": " << made.error().message;
    EXPECT_EQ(notes, Notes()) << verdicts.schema;
    for (const char* text : verdicts.holds) {
        EXPECT_TRUE(*Matches(**made, text)) << verdicts.schema << " refuses " << text;
    }
    for (const char* text : verdicts.refused) {
        EXPECT_FALSE(*Matches(**made, text)) << verdicts.schema << " lets through " << text;
    }
}

void ExpectExact(const Verdicts& verdicts) {
    for (const bool lenient : {false, true}) ExpectVerdicts(verdicts, lenient);
}

TEST(ClientSchemas, OtherSpellingsAreSupported) {
    const Verdicts cases[] = {
        {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
        {R"({"type":"string","nullable":false})", {"\"a\""}, {"null"}},
        {R"({"type":["integer","null"],"nullable":true})", {"null", "7"}, {"\"a\""}},
        {R"({"enum":["a","b"],"type":"string","nullable":true})", {"null", "\"b\""}, {"\"c\""}},
        {R"({"nullable":true})", {"null", "[1]"}, {"nul"}},
        {R"({"properties":{"a":{"allOf":[{"$ref":"#/$defs/x"}],"nullable":true}},"required":["a"],
             "$defs":{"x":{"type":"integer"}}})",
         {R"({"a":null})", R"({"a":3})"},
         {R"({"a":"b"})", "{}"}},
        {R"({"type":"array","items":[{"type":"string"},{"type":"integer"}]})",
         {R"(["a",1])"},
         {R"(["a"])", R"(["a","b"])"}},
        {R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2}})",
         {"[1]", "[1,2,2]"},
         {"[]", "[1,1]", "[2]"}},
        {R"({"type":"array","items":[{"const":1}],"additionalItems":false,"uniqueItems":false})",
         {"[1]"},
         {"[1,1]"}},
        {R"({"type":"array","items":{"const":1},"additionalItems":false})", {"[1,1]"}, {"[2]"}},
        {R"({"anyOf":[{"type":"integer"},{"not":{}}]})", {"1"}, {"null", "\"a\""}},
        {R"({"anyOf":[{"type":"integer"},{"allOf":[{"type":"boolean"},{"type":"array"}]}]})",
         {"1"},
         {"true", "[]"}},
        {R"({"properties":{"a":{"not":{}},"b":{"const":1}},"required":["b"]})",
         {R"({"b":1})"},
         {R"({"a":1,"b":1})"}},
        {R"({"properties":{"b":{"const":1}},"additionalProperties":{"not":{}}})",
         {R"({"b":1})", "{}"},
         {R"({"c":1})"}},
        {R"({"type":"integer","not":false})", {"1"}, {"\"a\""}},
        {R"({"type":"string","pattern":"^[\\w-\\.]+@([\\w-]+\\.)+[a-\\d]$"})",
         {R"("a-b.c@d.-")", R"("a@d.e.7")"},
         {R"("a b@d.7")", R"("a@d.b")"}},
        {R"({"type":"object","patternProperties":{"^x[0-9]+$":{"const":1}},
             "additionalProperties":false})",
         {"{}", R"({"x1":1,"x22":1})"},
         {R"({"x":1})", R"({"x1":2})", R"({"y1":1})"}},
        {R"({"type":"object","patternProperties":{"^(.*)$":{"type":"integer"}}})",
         {"{}", R"({"":1,"b c":2})"},
         {R"({"x":"1"})"}},
        {R"({"type":"string","contentEncoding":"base64","contentSchema":{"type":"null"}})",
         {R"("AA==")"},
         {"null"}},
        {R"({"type":"integer","minimum":0,"exclusiveMinimum":true,"maximum":3,
             "exclusiveMaximum":false})",
         {"1", "3"},
         {"0", "4"}}};
    for (const Verdicts& verdicts : cases) ExpectExact(verdicts);
}

TEST(ClientSchemas, BoundsBeyondAllNumbers) {
    const Verdicts cases[] = {
        {R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})",
         {"0", "-999999999999999999", "999999999999999999"},
         {"1000000000000000000", "1.5"}},
        {R"({"type":"integer","minimum":0,"maximum":18446744073709551615})", {"0", "7"}, {"-1"}},
        {R"({"type":"integer","exclusiveMinimum":-1e300,"maximum":9007199254740993})",
         {"9007199254740993"},
         {"9007199254740994"}},
        {R"({"type":"integer","minimum":-9999999999999999999999,"maximum":18446744073709551616})",
         {"0", "-7"},
         {"1.5"}},
        {R"({"type":"number","minimum":-0.5,"maximum":18446744073709551616,
             "maxLength":18446744073709551616})",
         {"0", "1.5"},
         {"-1"}},
        {R"({"type":"integer","enum":[123456789012345678901234567890,7]})",
         {"123456789012345678901234567890", "7"},
         {"123456789012345678901234567891", "1.2345678901234568e29"}},
        {R"({"const":{"a":[18446744073709551616]}})",
         {R"({"a":[18446744073709551616]})"},
         {R"({"a":[18446744073709551617]})"}},
        {R"({"type":"number","minimum":-1.7976931348623157e308,"maximum":1.7976931348623157e308})",
         {"1e30", "-2.5"},
         {"\"a\""}},
        {R"({"type":"number","minimum":0,"maximum":1e30})",
         {"0.5", "999999999999999999.5"},
         {"-1", "1e31", "1e2"}},
        {R"({"type":"number","maximum":1e30})", {"0.5", "-999999999999999999"}, {"1e31"}},
        {R"({"type":"number","exclusiveMinimum":-5e17})", {"1", "-100000000000000000"}, {"-6e17"}}};
    for (const Verdicts& verdicts : cases) ExpectExact(verdicts);
    for (const char* schema :
         {R"({"type":"integer","minimum":9223372036854775807})",
          R"({"type":"integer","maximum":-1e19})", R"({"type":"number","minimum":1e18})"}) {
        EXPECT_FALSE(GrammarFromJsonSchemaText(schema, {.lenient = true}).ok()) << schema;
    }
}

// Go's clients write absent lists and objects as null.
TEST(ClientSchemas, NullKeywords) {
    const Verdicts cases[] = {
        {R"({"type":"object","properties":{"a":{"type":"boolean","enum":null,"description":null},
             "enum":{"type":["null","integer"],"minimum":null}},"required":null,"$defs":null,
             "additionalProperties":null})",
         {R"({"a":true,"enum":1})", R"({"enum":null})", "{}"},
         {R"({"a":null})", R"({"b":1})"}},
        {R"({"type":"object","properties":null,"required":["a"]})", {R"({"a":[]})"}, {"{}"}},
        {R"({"type":"array","items":{"anyOf":[{"type":"string","pattern":null},{"const":null}]},
             "maxItems":null})",
         {R"(["a", null])", "[]"},
         {"[1]"}},
        {R"({"type":["string","null"],"enum":["a",null],"default":null,"items":null})",
         {"\"a\"", "null"},
         {"\"b\""}}};
    for (const Verdicts& verdicts : cases) ExpectVerdicts(verdicts, true);
    EXPECT_FALSE(GrammarFromJsonSchemaText(R"({"properties":null})").ok());
    // A property has a schema.
    EXPECT_FALSE(GrammarFromJsonSchemaText(R"({"properties":{"a":null}})", {.lenient = true}).ok());
}

TEST(ClientSchemas, NamesOfProperties) {
    const Verdicts cases[] = {
        {R"({"type":"object","propertyNames":{},"additionalProperties":{"type":"integer"}})",
         {R"({"a":1, "\n":2})"},
         {R"({"a":"b"})"}},
        {R"({"type":"object","propertyNames":{"type":"string"}})", {R"({"a":[]})"}, {"[]"}},
        {R"({"type":"object","propertyNames":true})", {R"({"a":[]})"}, {"[]"}},
        {R"({"propertyNames":{"type":"string","enum":["a","b"]},"required":["b"],
             "additionalProperties":{"type":"integer"}})",
         {R"({"a":1,"b":2})", R"({"b":2})"},
         {R"({"a":1})", R"({"b":1,"c":2})", R"({"b":"x"})", R"({"b":1,"b":2})"}},
        {R"({"propertyNames":{"$ref":"#/$defs/n"},"$defs":{"n":{"const":"k"}}})",
         {"{}", R"({"k":null})"},
         {R"({"a":1})"}},
        {R"({"properties":{"a":{},"b":{}},"propertyNames":{"enum":["a"]}})",
         {R"({"a":1})", "{}"},
         {R"({"b":1})"}},
        {R"({"type":"object","propertyNames":{"pattern":"^x\\d$"},"additionalProperties":
             {"type":"integer"}})",
         {R"({"x1":1,"x2":2})", "{}"},
         {R"({"y1":1})", R"({"x1":"a"})"}},
        {R"({"type":"object","propertyNames":{"minLength":2,"maxLength":3}})",
         {R"({"ab":1,"abc":2})"},
         {R"({"a":1})", R"({"abcd":1})"}},
        {R"({"type":"object","propertyNames":false})", {"{}"}, {R"({"a":1})"}}};
    for (const Verdicts& verdicts : cases) ExpectExact(verdicts);
}

TEST(ClientSchemas, MultiplesOfANumber) {
    const Verdicts cases[] = {
        {R"({"type":"integer","multipleOf":5})", {"0", "-15", "1234567890"}, {"4", "-1", "5.0"}},
        {R"({"type":"integer","multipleOf":7,"minimum":10,"maximum":30})",
         {"14", "21", "28"},
         {"7", "15", "35"}},
        {R"({"type":"number","multipleOf":0.01})",
         {"0.07", "1.5", "-12", "3.250"},
         {"0.075", "1e-3"}},
        {R"({"type":"number","multipleOf":0.25,"minimum":0,"maximum":2})",
         {"0", "0.5", "1.75", "2"},
         {"0.3", "2.25", "1.751"}},
        {R"({"type":"number","multipleOf":12})", {"24", "24.0", "0"}, {"24.5", "13"}},
        {R"({"multipleOf":2})", {"4"}, {"3", "\"a\""}}};
    for (const Verdicts& verdicts : cases) ExpectExact(verdicts);
    for (const bool lenient : {false, true}) {
        for (const char* schema :
             {R"({"type":"integer","multipleOf":0})", R"({"type":"integer","multipleOf":"2"})",
              R"({"type":"integer","multipleOf":7,"minimum":1,"maximum":6})"}) {
            EXPECT_FALSE(GrammarFromJsonSchemaText(schema, {.lenient = lenient}).ok()) << schema;
        }
    }
}

TEST(ClientSchemas, PatternsFormatsAndLengthsTogether) {
    const Verdicts cases[] = {
        {R"({"type":"string","pattern":"^[a-z\"\\n]+$","minLength":2,"maxLength":4})",
         {"\"ab\"", R"("a\"\nb")"},
         {"\"a\"", "\"abcde\"", "\"aB\"", R"("\u0061b")"}},
        {R"({"type":"string","pattern":"\u00fc","maxLength":3})",
         {"\"\xC3\xBC\"", "\"\xE2\x82\xAC\xC3\xBC\xF0\x9F\x98\x80\"", R"("\u0007ü\\")"},
         {"\"abc\"", "\"abc\xC3\xBC\"", "\"\xC3\""}},
        {R"({"type":"string","format":"email","maxLength":14})",
         {"\"ada@lace.co.uk\""},
         {"\"ada@lovelace.co.uk\"", "\"ada\""}},
        {R"({"type":"string","format":"hostname","minLength":5,"maxLength":253})",
         {"\"a.bcd\""},
         {"\"a.bc\""}},
        {R"({"type":"string","format":"date","pattern":"^20"})",
         {"\"2024-02-29\""},
         {"\"1999-01-01\"", "\"2023-02-29\""}},
        // zod's e164
        {R"x({"type":"string","format":"e164","pattern":"^\\+(?:[0-9]){6,14}[0-9]$"})x",
         {"\"+4930123456\""},
         {"\"+49\"", "\"4930123456\""}},
        {R"({"type":"string","format":"password","minLength":2})", {"\"ab\""}, {"\"a\""}},
        {R"({"type":"string","format":"file-path"})", {"\"/a b\""}, {"1"}},
        // pydantic's HttpUrl
        {R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})",
         {"\"https://example.org/a/b?c=d%20e#f\"", "\"http://10.0.0.1:8080/\"", "\"mailto:a@b\""},
         {"\"example.org\"", "\"http://a/%2\"", "\"\"", "\"http://a b\""}},
        // pydantic's Decimal
        {R"x({"type":"string","pattern":"^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$"})x",
         {"\"1.50\"", "\"-.5\"", "\"+007\""},
         {"\"\"", "\"-\"", "\"+.\"", "\"1.2.3\""}},
        {R"x({"type":"string","pattern":"^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]+$","minLength":3})x",
         {"\"aB3\"", "\"3Baaa\""},
         {"\"B3\"", "\"ab3\"", "\"aBc\"", "\"aB 3\""}}};
    for (const Verdicts& verdicts : cases) ExpectExact(verdicts);
    for (const bool lenient : {false, true}) {
        EXPECT_FALSE(GrammarFromJsonSchemaText(
                         R"({"type":"string","pattern":"^a{3}$","maxLength":2})", {lenient})
                         .ok());
    }
}

// If no text of the pattern has the format, the schema is refused or the format is noted as
// omitted.
TEST(ClientSchemas, FormatsAgainstPatterns) {
    for (const std::string format : {"date", "date-time", "email", "ipv4", "uuid", "time"}) {
        for (const std::string pattern : {"^[a-z]+$", "^\\\\w+@\\\\w+$", "^x{3}$"}) {
            const std::string schema = R"({"type":"string","maxLength":9,"format":")" + format +
                                       R"(","pattern":")" + pattern + "\"}";
            std::vector<std::string> notes;
            EXPECT_TRUE(
                GrammarFromJsonSchemaText(schema, {.lenient = true, .left_out = &notes}).ok());
            EXPECT_EQ(notes, std::vector<std::string>{"#: format"}) << schema;
            notes.clear();
            const auto strict = GrammarFromJsonSchemaText(schema, {.left_out = &notes});
            EXPECT_EQ(strict.ok(), format == "time") << schema;
            EXPECT_EQ(notes.size(), strict.ok() ? 1U : 0U) << schema;
        }
    }
    // zod's time
    const auto time = GrammarFromJsonSchemaText(
        R"x({"type":"string","format":"time","pattern":"^(?:[01]\\d|2[0-3]):[0-5]\\d$"})x", {});
    ASSERT_TRUE(time.ok());
    EXPECT_TRUE(Matches(**time, "\"09:30\"").value());
    for (const char* text : {"\"09:30:00Z\"", "\"24:00\""}) {
        EXPECT_FALSE(Matches(**time, text).value()) << text;
    }
}

TEST(ClientSchemas, Formats) {
    const std::string label(63, 'a'), word(64, 'a'), most = label + "." + label + "." + label + ".";
    const std::string longest = most + std::string(61, 'b');  // 253 bytes
    const struct {
        const char* format;
        std::vector<std::string> holds, refused;
    } cases[] = {
        {"ipv6",
         {"::", "::1", "1::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.128",
          "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1::8", "1:2:3:4:5:6:1.2.3.4", "FE80::1"},
         {"", ":", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", "12345::", "::1.2.3",
          "::256.1.1.1", "fe80::1%eth0", "1:2:3:4:5:6:7:8::", ":::", "g::"}},
        {"hostname",
         {"localhost", "example.com", "a-b.c", "xn--mnchen-3ya.de", "3com.com", "1host", label,
          longest, "a.b.c.d.e.f.g.h",
          "k8s-shop-ingress-0a1b2c3d4e-1234567890.elb.us-east-1.example.com",
          "api." + label + ".svc.cluster.local"},
         {"", "-a.com", "a-.com", "a..b", "a_b.com", ".a", "a.", label + "a", longest + "b",
          "10.0.0.1", "a.7", "m\xC3\xBC.de"}},
        {"email",
         {"ada@example.org", "ada.lovelace@example.co.uk", "john.van.doe@example.com",
          "a.b.c.d@example.com", "o'neil@example.com", "john+news@mail.eu.example.com",
          "department-of-records-and-statistics@example.com", word + "@example.com"},
         {"", "ada", "@example.com", "a..b@example.com", ".a@example.com", "a.@example.com",
          word + "a@example.com", "a@b", "a b@example.com", "o'@example.com"}},
        {"duration",
         {"P1D", "PT1H", "P1Y2M3DT4H5M6S", "P2W", "PT36H", "P1M", "P1YT1S", "PT0S"},
         {"", "P", "PT", "P1", "1D", "P1W2D", "P1D2H", "PT1D", "P1Y2D", "PT1H2S", "P0.5D"}},
        {"uuid",
         {"123e4567-e89b-12d3-a456-426614174000"},
         {"123e4567-e89b-12d3-a456-42661417400", "123e4567e89b12d3a456426614174000"}},
        {"uuid4",
         {"123e4567-e89b-42d3-a456-426614174000"},
         {"123e4567-e89b-12d3-a456-426614174000", ""}},
        {"ipvanyaddress", {"10.0.0.1", "::1"}, {"", "10.0.0", "localhost"}},
        {"base64", {"", "AAAA", "QQ==", "QUI=", "+/+/"}, {"A", "QQ", "QQ=", "-_-_", "AAAAA==="}},
        {"base64url", {"", "AAAA", "QQ==", "QQ", "QUI", "QUI=", "-_-_"}, {"A", "QQ=", "+/+/"}},
        {"uri",
         {"https://example.org/a/b?c=d#e", "mailto:ada@example.org", "urn:isbn:0451450523",
          "http://[::1]:8080/", "file:///etc/hosts", "http://u:p@h.example:80", "a:"},
         {"", "example.org", "//example.org", "http://a b", "http://\xC3\xBC", "http://[::1",
          "1a:b", "http://a/%zz"}}};
    for (const auto& [format, holds, refused] : cases) {
        const auto made = GrammarFromJsonSchema({{"type", "string"}, {"format", format}});
        ASSERT_TRUE(made.ok()) << made.error().message;
        for (const std::string& text : holds) {
            EXPECT_TRUE(*Matches(**made, "\"" + text + "\"")) << format << " refuses " << text;
        }
        for (const std::string& text : refused) {
            EXPECT_FALSE(*Matches(**made, "\"" + text + "\"")) << format << " takes " << text;
        }
    }
}

struct Outcome {
    const char* schema;
    const char* refusal;  // of the strict compiler
    Notes notes;          // of the lenient compiler
    const char* holds;    // accepted by the lenient grammar
};
const Outcome kOutcomes[] = {
    {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true})",
     "#: the keyword 'uniqueItems' is not supported",
     {"#: uniqueItems"},
     "[1,1]"},
    {R"({"properties":{"a":{"not":{"type":"string"},"type":["string","null"]}}})",
     "#/properties/a: the keyword 'not'",
     {"#/properties/a: not"},
     R"({"a":"x"})"},
    {R"({"type":"integer","if":{},"then":{},"else":{}})",
     "'if'",
     {"#: if", "#: then", "#: else"},
     "4"},
    {R"({"type":"object","patternProperties":{"^x":{},"y":{}},"additionalProperties":false})",
     "'patternProperties'",
     {"#: patternProperties"},
     R"({"z":1})"},
    {R"({"properties":{"a":{}},"minProperties":1,"maxProperties":3,"dependentRequired":{}})",
     "'minProperties' is not supported except with the value 0",
     {"#: minProperties", "#: maxProperties", "#: dependentRequired"},
     "{}"},
    {R"({"properties":{"a":{}},"propertyNames":{"maxLength":1}})",
     "'propertyNames' is not supported together",
     {"#: propertyNames"},
     R"({"a":1})"},
    {R"({"type":"array","contains":{"const":1}})", "'contains'", {"#: contains"}, "[]"},
    {R"x({"type":"string","pattern":"a(?=b)","maxLength":2})x",
     "look-ahead",
     {"#: pattern"},
     "\"xy\""},
    {R"({"type":"string","pattern":"^.{1,20000}$"})", "a count above", {"#: pattern"}, "\"b\""},
    {R"x({"properties":{"a":{"type":"string","pattern":"^(?:.{1,9000}){9}$"},
                        "b":{"type":"string","pattern":"^x{2,3}$"}}})x",
     "too large",
     {"#/properties/a: pattern"},
     R"({"a":"","b":"xx"})"},
    {R"x({"type":"string","pattern":"(a)\\1"})x", "back-references", {"#: pattern"}, "\"b\""},
    {R"({"type":"string","format":"iri"})",
     "the format 'iri' is not supported",
     {"#: format"},
     "\"b\""},
    {R"({"type":"integer","multipleOf":123457})", "'multipleOf': 123457", {"#: multipleOf"}, "4"},
    {R"({"enum":["a","bc"],"maxLength":1})", "beside 'enum'", {"#: maxLength"}, "\"a\""},
    {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
     "alternatives 0 and 1",
     {"#: oneOf"},
     "1.5"},
    {R"({"allOf":[{"type":"string","pattern":"^a"},{"pattern":"b$"}]})",
     "two different 'pattern'",
     {"#: pattern"},
     "\"ac\""},
    {R"({"type":"string","oneOf":[{"pattern":"^a"},{"pattern":"b$"}]})",
     "two different 'pattern'",
     {"#: oneOf"},
     "\"ab\""},
    {R"({"type":"string","minLenght":3})", "'minLenght'", {"#: minLenght"}, "\"\""},
    {R"({"type":"string","pattern":"^(?:a|b)*a(?:a|b){14}$","maxLength":90000})",
     "'pattern' beside 'maxLength'",
     {"#: maxLength"},
     "\"aaaaaaaaaaaaaaa\""}};

// Unsupported keywords: rejected by name if strict; skipped and noted otherwise.
TEST(ClientSchemas, SkippedOrRejected) {
    for (const auto& [schema, refusal, notes, holds] : kOutcomes) {
        const auto strict = GrammarFromJsonSchemaText(schema);
        ASSERT_FALSE(strict.ok()) << schema;
        EXPECT_NE(strict.error().message.find(refusal), std::string::npos)
            << strict.error().message;
        Notes found;
        const auto made = GrammarFromJsonSchemaText(schema, {.lenient = true, .left_out = &found});
        ASSERT_TRUE(made.ok()) << made.error().message;
        EXPECT_EQ(found, notes) << schema;
        EXPECT_TRUE(*Matches(**made, holds)) << schema << " refuses " << holds;
    }
}

TEST(ClientSchemas, InvalidSchemasAreAlwaysRejected) {
    for (const char* schema :
         {R"({"type":"strnig"})", R"({"$ref":"#/$defs/x"})", R"({"$ref":"other.json"})", "7", "{",
          R"({"type":"array","uniqueItems":"x"})", R"({"type":"string","nullable":1})",
          R"({"type":"string","pattern":"(a"})", R"({"type":"string","pattern":3})",
          R"({"type":"string","format":3})", R"({"minProperties":-1})",
          R"({"items":[{}],"prefixItems":[{}]})", R"({"items":[7]})", R"({"anyOf":[]})",
          R"({"propertyNames":7})", R"({"type":"string","minLength":100001})", "false"}) {
        EXPECT_FALSE(GrammarFromJsonSchemaText(schema, {.lenient = true}).ok()) << schema;
    }
}

// The automata of a grammar share a budget; beyond it, keywords are skipped or rejected.
TEST(ClientSchemas, AutomataAreBounded) {
    for (const char* rules : {R"("pattern":"^(?:a|b)*a(?:a|b){14}$","maxLength":3000)",
                              R"("pattern":"(?:a{1000}){100}","minLength":7)",
                              R"x("pattern":"^(?=.{1,900}x)(?!.{1,900}y).*$")x"}) {
        std::string schema = "{\"properties\":{";
        for (int i = 0; i < 2000; ++i) {
            schema += fmt::format("\"p{}\":{{\"type\":\"string\",{}}},", i, rules);
        }
        schema.back() = '}';
        EXPECT_FALSE(GrammarFromJsonSchemaText(schema + "}").ok());
        Notes notes;
        (void)GrammarFromJsonSchemaText(schema + "}", {.lenient = true, .left_out = &notes});
        EXPECT_EQ(notes.size(), 16U) << rules;
    }
}

// Notes are limited in number and length, without duplicates.
TEST(ClientSchemas, NotesAreBounded) {
    nlohmann::ordered_json schema{{"type", "object"}, {"properties", nlohmann::json::object()}};
    for (int i = 0; i < 40; ++i) {
        schema["properties"][std::string(300, 'x') + std::to_string(i)] = {{"not", {{"const", 1}}}};
    }
    Notes notes;
    ASSERT_TRUE(GrammarFromJsonSchema(schema, {.lenient = true, .left_out = &notes}).ok());
    EXPECT_GT(notes.size(), 0U);
    EXPECT_LE(notes.size(), 16U);
    for (const std::string& note : notes) EXPECT_LT(note.size(), 220U);
    Notes once;
    const auto twice = GrammarFromJsonSchemaText(
        R"({"anyOf":[{"$ref":"#/$defs/x"},{"allOf":[{"$ref":"#/$defs/x"}]}],
            "$defs":{"x":{"type":"array","uniqueItems":true}}})",
        {.lenient = true, .left_out = &once});
    ASSERT_TRUE(twice.ok()) << twice.error().message;
    EXPECT_LE(once.size(), 3U);
}

// Compiling the same text with the same option gives equal grammars: random texts of one match the
// other.
TEST(ClientSchemas, CompiledAgainIsTheSame) {
    const char* schema = R"x({"properties":{"a":{"type":"string","format":"email","maxLength":20},
        "n":{"type":"number","multipleOf":0.5,"minimum":0,"maximum":9},
        "s":{"type":"array","items":{"type":"string","pattern":"^(?!x)[w-z]+$","minLength":2},
             "uniqueItems":true,"maxItems":3}},"required":["a","n","s"]})x";
    std::mt19937 random(17);
    const auto trie = CrossingTokens();
    const auto one = GrammarFromJsonSchemaText(schema, {.lenient = true});
    const auto two = GrammarFromJsonSchemaText(schema, {.lenient = true});
    ASSERT_TRUE(one.ok() && two.ok());
    const auto fresh = Matcher::Make(*one, trie), other = Matcher::Make(*two, trie);
    ASSERT_TRUE(fresh.ok() && other.ok());
    for (int round = 0; round < 20; ++round) {
        const auto seed = random();
        std::mt19937 left(seed), right(seed);
        const auto text = RandomText(*fresh, *trie, left, 30);
        const auto again = RandomText(*other, *trie, right, 30);
        ASSERT_TRUE(text.ok() && again.ok());
        EXPECT_EQ(*text, *again);
        EXPECT_TRUE(*Matches(**two, *text)) << *text;
    }
}

// Each call's schema is strict or not on its own.
TEST(ClientSchemas, CallsAreStrictOrNot) {
    const auto set = nlohmann::ordered_json::parse(
        R"({"properties":{"s":{"type":"array","uniqueItems":true}},"required":["s"]})");
    Notes notes;
    EXPECT_FALSE(GrammarFromCalls({{"f(", ")", set}}, {}, &notes).ok());
    const auto made = GrammarFromCalls({{"f(", ")", set, true}}, {}, &notes);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(notes, Notes{"#/properties/s: uniqueItems"});
    EXPECT_TRUE(*Matches(**made, R"(f({"s":[1,1]}))"));
    EXPECT_FALSE(GrammarFromCalls({{"f(", ")", set, true}, {"g(", ")", set}}, {}).ok());
}

}  // namespace
}  // namespace weft::grammar
