// Grammars from regular expressions compared with PCRE2, over random expressions and texts.
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <nlohmann/json.hpp>

#include "grammar/regex_grammar.h"
#include "support/grammar_walk.h"

namespace weft::grammar {
namespace {

// PCRE2's result for a whole text; nullopt if it gives up or the expression does not compile.
class Pcre {
  public:
    explicit Pcre(const std::string& pattern) {
        const std::string whole = fmt::format("\\A(?:{})\\z", pattern);
        int error = 0;
        size_t at = 0;
        code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(), PCRE2_UTF,
                              &error, &at, nullptr);
        if (code_ != nullptr) match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
    }
    ~Pcre() {
        pcre2_match_data_free(match_);
        pcre2_code_free(code_);
    }
    Pcre(const Pcre&) = delete;
    Pcre& operator=(const Pcre&) = delete;

    bool ok() const { return code_ != nullptr; }
    std::optional<bool> Holds(const std::string& text) const {
        const int status = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                       text.size(), 0, 0, match_, nullptr);
        if (status >= 0) return true;
        if (status == PCRE2_ERROR_NOMATCH) return false;
        return std::nullopt;
    }

  private:
    pcre2_code* code_ = nullptr;
    pcre2_match_data* match_ = nullptr;
};

// The same expression in our dialect and in PCRE2's.
struct Pattern {
    std::string ours, theirs;
};

const std::vector<std::string> kLetters = {
    "a", "b", "1", "_", " ", "\"", "-", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\n", "\t"};

Pattern RandomAtom(std::mt19937& random, int depth);

Pattern RandomPattern(std::mt19937& random, int depth) {
    Pattern all;
    for (size_t alternatives = 1 + (random() % 3 == 0); alternatives > 0; --alternatives) {
        for (size_t n = random() % 4; n > 0; --n) {
            const Pattern atom = RandomAtom(random, depth);
            static const std::vector<std::string> kRepeats = {"",   "",    "",       "*",    "+",
                                                              "?",  "{2}", "{0,2}",  "{1,}", "*?",
                                                              "+?", "??",  "{1,3}?", "{0}"};
            const std::string& repeat = kRepeats[random() % kRepeats.size()];
            all.ours += atom.ours + repeat;
            all.theirs += atom.theirs + repeat;
        }
        if (alternatives > 1) {
            all.ours += '|';
            all.theirs += '|';
        }
    }
    return all;
}

Pattern RandomAtom(std::mt19937& random, int depth) {
    static const std::vector<Pattern> kAtoms = {
        {".", "[^\\n\\r\\x{2028}\\x{2029}]"},
        {"\\d", "[0-9]"},
        {"\\D", "[^0-9]"},
        {"\\w", "[0-9A-Za-z_]"},
        {"\\W", "[^0-9A-Za-z_]"},
        {"\\s",
         "[\\t-\\r \\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"
         "\\x{3000}\\x{FEFF}]"},
        {"[^a\\d]", "[^a0-9]"},
        {"[a-b\\s-]",
         "[a-b\\t-\\r \\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"
         "\\x{205F}\\x{3000}\\x{FEFF}-]"},
        {"[\\u00e0-\\uFFFD]", "[\\x{e0}-\\x{D7FF}\\x{E000}-\\x{FFFD}]"},
        {"\\uD83D\\uDE00", "\\x{1F600}"},
        {"\\u{20aC}", "\\x{20AC}"},
        {"\\x61", "a"},
        {"\\.", "\\."},
        {"{", "\\{"},
        {"]", "\\]"},
        {"\\n", "\\n"},
        {"[\"\\\\]", "[\"\\\\]"}};
    if (depth > 0 && random() % 3 == 0) {
        const Pattern inner = RandomPattern(random, depth - 1);
        const char* open = random() % 2 == 0 ? "(" : "(?:";
        return {fmt::format("{}{})", open, inner.ours), fmt::format("(?:{})", inner.theirs)};
    }
    if (random() % 2 == 0) return kAtoms[random() % kAtoms.size()];
    const std::string& letter = kLetters[random() % (kLetters.size() - 2)];
    return {letter, letter};
}

std::string RandomLetters(std::mt19937& random) {
    std::string text;
    for (size_t n = random() % 6; n > 0; --n) text += kLetters[random() % kLetters.size()];
    return text;
}

void Mutate(std::string& text, std::mt19937& random) {
    if (text.empty()) return;
    const size_t at = random() % text.size();
    if (static_cast<uint8_t>(text[at]) >= 0x80) return;  // keeps the text valid UTF-8
    const std::string other = random() % 3 == 0 ? "" : kLetters[random() % kLetters.size()];
    text.replace(at, 1, other);
}

TEST(RegexGrammar, AgreesWithPcre) {
    std::mt19937 random(11);
    const auto trie = CrossingTokens();
    size_t held = 0, refused = 0;
    for (int round = 0; round < 400; ++round) {
        const Pattern pattern = RandomPattern(random, 3);
        const Pcre pcre(pattern.theirs);
        ASSERT_TRUE(pcre.ok()) << pattern.theirs;
        const auto grammar = GrammarFromRegex(pattern.ours);
        ASSERT_TRUE(grammar.ok()) << grammar.error().message;
        const auto fresh = Matcher::Make(*grammar, trie);
        ASSERT_TRUE(fresh.ok());
        for (int i = 0; i < 25; ++i) {
            std::string text = RandomLetters(random);
            if (i % 5 < 3) {
                const auto drawn = RandomText(*fresh, *trie, random, 4, 200);
                // Some end only with a token that is rarely drawn.
                if (!drawn.ok() && drawn.error().code == ErrorCode::kTimeout) continue;
                ASSERT_TRUE(drawn.ok()) << pattern.ours << ": " << drawn.error().message;
                text = *drawn;
                if (i % 5 < 2) Mutate(text, random);
                const auto sure = pcre.Holds(*drawn);
                EXPECT_TRUE(!sure || *sure) << pattern.ours << " made " << *drawn;
            }
            const auto expected = pcre.Holds(text);
            if (!expected) continue;
            const auto holds = Matches(**grammar, text);
            ASSERT_TRUE(holds.ok());
            EXPECT_EQ(*holds, *expected) << pattern.ours << " on " << text;
            (*expected ? held : refused) += 1;
        }
    }
    EXPECT_GT(held, 2000U);
    EXPECT_GT(refused, 2000U);
}

// Inside a JSON string: exactly the matching texts, as a JSON writer escapes them; unanchored
// expressions match anywhere.
TEST(RegexGrammar, InsideJsonStrings) {
    std::mt19937 random(12);
    for (int round = 0; round < 300; ++round) {
        const Pattern pattern = RandomPattern(random, 2);
        const bool begin = random() % 2 == 0, end = random() % 2 == 0;
        const std::string any = "[\\s\\S]*";
        const Pcre pcre(
            fmt::format("{}(?:{}){}", begin ? "" : any, pattern.theirs, end ? "" : any));
        ASSERT_TRUE(pcre.ok());
        const std::string anchored =
            fmt::format("{}({}){}", begin ? "^" : "", pattern.ours, end ? "$" : "");
        GrammarBuilder builder;
        const auto inside = ExprFromRegex(anchored, {.search = true, .json_string = true}, builder);
        ASSERT_TRUE(inside.ok()) << inside.error().message;
        const auto root = builder.AddRule("root");
        const auto quote = builder.Text("\"");
        builder.Define(root, builder.Sequence({quote, *inside, quote}));
        const auto grammar = builder.Build(root);
        ASSERT_TRUE(grammar.ok()) << grammar.error().message;
        for (int i = 0; i < 20; ++i) {
            const std::string text = RandomLetters(random);
            const auto expected = pcre.Holds(text);
            if (!expected) continue;
            const auto holds = Matches(**grammar, nlohmann::json(text).dump());
            ASSERT_TRUE(holds.ok());
            EXPECT_EQ(*holds, *expected) << anchored << " on " << text;
        }
    }
}

TEST(RegexGrammar, Anchors) {
    for (const char* pattern : {"^ab$", "ab", "^ab", "ab$", "^(ab)$|^x$"}) {
        const auto grammar = GrammarFromRegex(pattern);
        ASSERT_TRUE(grammar.ok()) << grammar.error().message;
        EXPECT_TRUE(*Matches(**grammar, "ab")) << pattern;
        EXPECT_FALSE(*Matches(**grammar, "xab")) << pattern;
    }
}

// After the ^ of an expression; compared with PCRE2.
TEST(RegexGrammar, LookAheads) {
    std::mt19937 random(23);
    size_t held = 0, refused = 0;
    for (int round = 0; round < 300; ++round) {
        const Pattern first = RandomPattern(random, 1), second = RandomPattern(random, 1);
        const Pattern rest = RandomPattern(random, 2);
        const char* kinds[] = {"(?={}{})", "(?!{}{})"};
        const char *one = kinds[random() % 2], *two = kinds[random() % 2];
        const bool ends = random() % 2 == 0;
        const auto whole = [&](const std::string& a, const std::string& b, const std::string& c,
                               const char* end) {
            return "^" + fmt::format(fmt::runtime(one), "(?:" + a + ")", ends ? end : "") +
                   fmt::format(fmt::runtime(two), "(?:" + b + ")", "") + "(?:" + c + ")" + end;
        };
        const Pcre pcre(whole(first.theirs, second.theirs, rest.theirs, "\\z"));
        ASSERT_TRUE(pcre.ok());
        const std::string ours = whole(first.ours, second.ours, rest.ours, "$");
        const auto grammar = GrammarFromRegex(ours);
        if (!grammar.ok()) {  // no text matches
            EXPECT_NE(grammar.error().message.find("no finite text"), std::string::npos)
                << ours << ": " << grammar.error().message;
            continue;
        }
        for (int i = 0; i < 30; ++i) {
            const std::string text = RandomLetters(random);
            const auto expected = pcre.Holds(text);
            if (!expected) continue;
            const auto holds = Matches(**grammar, text);
            ASSERT_TRUE(holds.ok());
            EXPECT_EQ(*holds, *expected) << ours << " on " << text;
            (*expected ? held : refused) += 1;
        }
    }
    EXPECT_GT(held, 100U);
    EXPECT_GT(refused, 1000U);
}

TEST(RegexGrammar, RejectsByName) {
    const std::pair<const char*, const char*> cases[] = {
        {"(?=a)b", "look-ahead"},
        {"(?!a)b", "look-ahead"},
        {"(?<=a)b", "look-behind"},
        {"(?<!a)b", "look-behind"},
        {"(a)\\1", "back-references"},
        {"(?<n>a)\\k<n>", "back-references"},
        {"\\bword", "word boundaries"},
        {"\\p{L}", "property classes"},
        {"(?i)a", "flags"},
        {"(?>a)", "atomic"},
        {"a*+", "possessive"},
        {"a**", "a repetition is repeated"},
        {"*a", "nothing to repeat"},
        {"a{2,1}", "minimum 2 of a repetition is above its maximum 1"},
        {"a{20000}", "a count above"},
        {"{,3}", "ambiguous between dialects"},
        {"[[:alpha:]]", "not supported"},
        {"[]a]", "escape it"},
        {"[b-a]", "end is below its start"},
        {"[a", "without its ']'"},
        {"(a", "without its ')'"},
        {"a)", "without its '('"},
        {"a^b", "'^' inside"},
        {"a$b", "'$' is supported only at the end"},
        {"\\", "ends with a backslash"},
        {"\\y", "\\y is not supported"},
        {"\\uD800", "U+D800 is not a character"},
        {"\\u12", "4 hexadecimal digits"},
        {"\\u{110000}", "is not a character"},
        {"\xFF", "not valid UTF-8"},
        {"((a{1000}){1000}){1000}", "too large"}};
    for (const auto& [pattern, words] : cases) {
        const auto made = GrammarFromRegex(pattern);
        ASSERT_FALSE(made.ok()) << pattern;
        const bool known = made.error().message.find("not supported") == std::string::npos;
        EXPECT_TRUE(known || made.error().code == ErrorCode::kUnsupported) << pattern;
        EXPECT_NE(made.error().message.find(words), std::string::npos) << made.error().message;
    }
    for (const char* wrong : {"(a", "a)", "[a", "*a", "a{2,1}", "\\", "[b-a]"}) {
        EXPECT_EQ(GrammarFromRegex(wrong).error().code, ErrorCode::kUsage) << wrong;
    }
    EXPECT_FALSE(GrammarFromRegex(std::string(1000, '(')).ok());
    EXPECT_FALSE(GrammarFromRegex(std::string(kMostRegexBytes + 1, 'a')).ok());
}

}  // namespace
}  // namespace weft::grammar
