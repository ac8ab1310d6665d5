// Matching: GBNF and hand-made grammars, masks over vocabularies, limits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>

#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/mask_cache.h"
#include "grammar/point_set.h"
#include "support/grammar_walk.h"
#include "support/limits.h"

namespace weft::grammar {
namespace {

GrammarPtr Gbnf(std::string_view text) {
    auto made = GrammarFromGbnf(text);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? *made : nullptr;
}

bool Holds(const GrammarPtr& grammar, std::string_view text) {
    const auto holds = Matches(*grammar, text);
    EXPECT_TRUE(holds.ok()) << (holds.ok() ? "" : holds.error().message);
    return holds.ok() && *holds;
}

std::string Refusal(std::string_view text) {
    const auto made = GrammarFromGbnf(text);
    if (made.ok()) return "accepted";
    EXPECT_EQ(made.error().code, ErrorCode::kUsage);
    return made.error().message;
}

void ExpectTexts(std::string_view gbnf, const std::vector<std::string>& in,
                 const std::vector<std::string>& out) {
    const GrammarPtr grammar = Gbnf(gbnf);
    for (const std::string& text : in) EXPECT_TRUE(Holds(grammar, text)) << gbnf << ": " << text;
    for (const std::string& text : out) EXPECT_FALSE(Holds(grammar, text)) << gbnf << ": " << text;
}

TEST(Gbnf, Forms) {
    ExpectTexts("root ::= \"ab\" | \"c\"+", {"ab", "c", "ccc"}, {"", "a", "abc", "cab"});
    ExpectTexts("root ::= [a-c_x-]? \"!\"", {"!", "a!", "-!", "_!"}, {"d!", "a", "aa!"});
    ExpectTexts("root ::= [^a-c\\n]", {"d", "\xC3\xA9", "\xF0\x9F\x98\x80"}, {"a", "\n", "", "dd"});
    ExpectTexts("root ::= \"a\"{2}", {"aa"}, {"a", "aaa"});
    ExpectTexts("root ::= \"ab\"{1,2} [0-9]{2,}", {"ab12", "abab123"}, {"12", "ab1", "ababab12"});
    ExpectTexts("root ::= \"a\"{0,1} \"b\"{0}", {"", "a"}, {"b", "ab"});
    ExpectTexts("root ::= .", {"x", "\n", "\xE2\x82\xAC"}, {"", "xy", "\xFF", "\xE2\x82"});
    ExpectTexts("root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"",
                {"A\xC3\xA9\xF0\x9F\x98\x80\t\"\\"}, {"A"});
    ExpectTexts("root ::= [\\]\\[\\\\\"]+", {"[]", "\\\""}, {"a"});
    ExpectTexts("root ::= \"\"", {""}, {"a"});
    ExpectTexts("root ::= (\"a\"? \"b\"?)* \"c\"", {"c", "abbac"}, {"ab", "ca"});
}

TEST(Gbnf, LinesAndComments) {
    ExpectTexts("# first\nroot ::= a # it\n\n\na ::= (\n  \"x\" |  # or\n  \"y\"\n) |\n  \"z\"",
                {"x", "y", "z"}, {"xy"});
    ExpectTexts("root::=\r\n  \"x\"\r\nb ::= root", {"x"}, {});
}

TEST(Gbnf, Recursion) {
    const GrammarPtr nested = Gbnf("root ::= \"(\" root \")\" | \"\"");
    EXPECT_TRUE(Holds(nested, std::string(400, '(') + std::string(400, ')')));
    EXPECT_FALSE(Holds(nested, std::string(40, '(') + std::string(39, ')')));
    // Calls at the end of a rule do not grow the stack.
    const GrammarPtr tail = Gbnf("root ::= \"a\" root | \"b\"");
    EXPECT_TRUE(Holds(tail, std::string(100'000, 'a') + "b"));
    // Palindromes: as many stacks as characters so far.
    const GrammarPtr mirror = Gbnf("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"\"");
    EXPECT_TRUE(Holds(mirror, "abbaabba"));
    EXPECT_FALSE(Holds(mirror, "abbaabb"));
    ExpectTexts(
        "root ::= list\nlist ::= item (\",\" ws item)*\nitem ::= [a-z]+ | \"[\" list \"]\"\n"
        "ws ::= \" \"?",
        {"a", "a, b,[c,d]"}, {"a,", "[a", ",a"});
}

TEST(Gbnf, ErrorsNameLineAndColumn) {
    EXPECT_EQ(Refusal("root ::= a\na ::= \"x"),
              "grammar: line 2, column 7: a string is not terminated by '\"'");
    EXPECT_EQ(Refusal("root ::= \"\xC3\xA9\" b"),
              "grammar: line 1, column 14: rule 'b' is not defined");
    EXPECT_EQ(Refusal("root = 1"),
              "grammar: line 1, column 6: expected '::=' after 'root', found '='");
    EXPECT_NE(Refusal("a ::= \"x\"").find("the start rule 'root' is missing"), std::string::npos);
    EXPECT_NE(Refusal("").find("the start rule 'root' is missing"), std::string::npos);
    EXPECT_NE(Refusal("root ::= \"\\q\"").find("column 11: unknown escape"), std::string::npos);
    EXPECT_NE(Refusal("root ::= [z-a]").find("end is below its start"), std::string::npos);
    EXPECT_NE(Refusal("root ::= [a").find("column 10: a class is not terminated"),
              std::string::npos);
    EXPECT_NE(Refusal("root ::= \"\\ud800\"").find("U+D800 is not a character"), std::string::npos);
    EXPECT_NE(
        Refusal("root ::= \"a\"{3,2}").find("minimum 3 of a repetition is above its maximum 2"),
        std::string::npos);
    EXPECT_NE(Refusal("root ::= \"a\"{,2}").find("expected a count"), std::string::npos);
    EXPECT_NE(Refusal("root ::= \"a\"{99999}").find("count of at most 10000"), std::string::npos);
    EXPECT_NE(Refusal("root ::= <think>").find("token references"), std::string::npos);
    EXPECT_NE(Refusal("root ::= (\"a\"").find("expected ')'"), std::string::npos);
    EXPECT_NE(Refusal("root ::= \"a\")").find("expected the end of the line"), std::string::npos);
    EXPECT_NE(
        Refusal("root ::= \"a\"\nroot ::= \"b\"").find("line 2, column 1: rule 'root' is defined"),
        std::string::npos);
    EXPECT_NE(Refusal("root ::= \"\xFF\"").find("invalid UTF-8"), std::string::npos);
    EXPECT_NE(Refusal(fmt::format("root ::= {}", std::string(300, '('))).find("nest deeper"),
              std::string::npos);
}

TEST(Gbnf, RejectsLeftRecursion) {
    EXPECT_NE(Refusal("root ::= root \"a\" | \"b\"").find("'root' is left-recursive: root -> root"),
              std::string::npos);
    EXPECT_NE(Refusal("root ::= \"x\" a\na ::= b \"y\" | \"z\"\nb ::= a \"q\"").find("a -> b -> a"),
              std::string::npos);
    // After something that may be empty: a text, a repetition, a rule.
    EXPECT_NE(Refusal("root ::= \"a\"? root | \"b\"").find("left-recursive"), std::string::npos);
    EXPECT_NE(Refusal("root ::= ws root \"b\" | \"c\"\nws ::= sp sp\nsp ::= \" \"*")
                  .find("left-recursive"),
              std::string::npos);
    EXPECT_NE(Refusal("root ::= (root)? \"b\"").find("left-recursive"), std::string::npos);
}

TEST(Gbnf, RejectsInfiniteAndTooLargeGrammars) {
    EXPECT_NE(Refusal("root ::= \"a\" root").find("no finite text matches rule 'root'"),
              std::string::npos);
    EXPECT_NE(Refusal("root ::= [^\\x00-\\U0010FFFF]").find("no finite text matches"),
              std::string::npos);
    // An alternative that cannot end is never entered.
    ExpectTexts("root ::= \"b\" | a\na ::= \"x\" a", {"b"}, {"x"});
    EXPECT_NE(Refusal("root ::= ((\"a\"{1000}){1000}){1000}").find("too large"), std::string::npos);
    EXPECT_NE(Refusal("root ::= ((\"\"{10000}){10000}){10000}").find("too large"),
              std::string::npos);
    EXPECT_NE(Refusal(std::string(kMostGbnfBytes + 1, ' ')).find("expected at most"),
              std::string::npos);
}

// CPU seconds of this thread until the grammar is rejected as too large.
double RefusalSeconds(const std::string& gbnf) {
    const auto now_s = [] {
        timespec now{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
    };
    const double begin_s = now_s();
    EXPECT_NE(Refusal(gbnf).find("too large"), std::string::npos) << gbnf.substr(0, 80);
    return now_s() - begin_s;
}

TEST(Gbnf, RejectsTooLargeGrammarsQuickly) {
    constexpr double most_s =
        20;  // CPU time; an idle core takes 1 s, without the check it takes minutes
    // An expression that matches nothing needs no states or edges, however often it is expanded.
    std::string nothing = "[]", rules, calls;
    for (int i = 1; i < 60'000; ++i) nothing += "|[]";
    EXPECT_LT(RefusalSeconds("root ::= \"a\" | (" + nothing + "){0,10000}"), most_s);
    EXPECT_LT(RefusalSeconds("root ::= \"a\" | ((" + nothing + "){0,9999}){0,9999}"), most_s);
    // Each of the calls may be empty and leads to all that follow.
    for (int i = 0; i < 10'000; ++i) {
        calls += fmt::format(" r{}", i);
        rules += fmt::format("\nr{} ::= [a-z]?", i);
    }
    EXPECT_LT(RefusalSeconds("root ::=" + calls + rules), most_s);
}

// Ambiguity within one rule is one automaton state; other ambiguity stays within limits.
TEST(Grammar, Ambiguity) {
    const GrammarPtr far = Gbnf("root ::= [ab]* \"a\" [ab]{40}");
    EXPECT_TRUE(Holds(far, std::string(100, 'b') + "a" + std::string(40, 'b')));
    EXPECT_FALSE(Holds(far, std::string(100, 'b') + "b" + std::string(40, 'a')));
    const GrammarPtr same =
        Gbnf("root ::= x x x x x x x x x x\nx ::= y | y y | y y y\ny ::= \"a\"+");
    EXPECT_TRUE(Holds(same, std::string(200, 'a')));
    // 2^n different stacks.
    const GrammarPtr apart =
        Gbnf("root ::= a | b | \"\"\na ::= \"x\" root \"1\"\nb ::= \"x\" root \"2\"");
    EXPECT_TRUE(Holds(apart, "xxxx1212"));
    const auto refused = Matches(*apart, std::string(30, 'x'));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    const auto trie = CrossingTokens();
    auto matcher = Matcher::Make(apart, trie);
    ASSERT_TRUE(matcher.ok());
    std::vector<uint32_t> bits(trie->mask_words());
    Status status;
    int count = 0;
    for (; status.ok() && count < 40; ++count) {
        status = matcher->Allowed(bits);
        if (status.ok()) status = matcher->Accept('x');
    }
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("too ambiguous"), std::string::npos);
    EXPECT_GT(count, 7);
}

TEST(Gbnf, RepetitionsOfRepetitions) {
    struct Case {
        const char* gbnf;
        uint32_t least, most;
    };
    for (const Case& each : std::vector<Case>{{"(\"a\"?){3}", 0, 3},
                                              {"(\"a\"?){2,5}", 0, 5},
                                              {"(\"a\"{0,2}){3}", 0, 6},
                                              {"(\"a\"?)*", 0, 99},
                                              {"(\"a\"*){2,3}", 0, 99},
                                              {"((\"a\"*)*)*", 0, 99},
                                              {"(\"a\"+){2,3}", 2, 99},
                                              {"(\"a\"+)?", 0, 99},
                                              {"(\"a\"+)+", 1, 99},
                                              {"(\"a\"+){0}", 0, 0},
                                              {"(\"a\"?){0}", 0, 0},
                                              {"(\"a\"{0}){3}", 0, 0},
                                              {"(\"a\"{2}){2}", 4, 4}}) {
        const GrammarPtr grammar = Gbnf(fmt::format("root ::= {} \"b\"", each.gbnf));
        for (uint32_t count = 0; count < 12; ++count) {
            EXPECT_EQ(Holds(grammar, std::string(count, 'a') + "b"),
                      count >= each.least && count <= each.most)
                << each.gbnf << ", " << count;
        }
    }
    const GrammarPtr gaps = Gbnf("root ::= (\"a\"{2,3}){0,2}");  // 0, 2, 3, 4, 5 or 6 times
    EXPECT_TRUE(Holds(gaps, "") && Holds(gaps, "aaaa") && Holds(gaps, "aaaaaa"));
    EXPECT_FALSE(Holds(gaps, "a") || Holds(gaps, "aaaaaaa"));
}

uint64_t StepsOf(const Matcher& matcher, const TokenTrie& trie, bool good) {
    std::vector<uint32_t> bits(trie.mask_words());
    uint64_t steps = 0;
    EXPECT_EQ(matcher.Allowed(bits, &steps).ok(), good);
    return steps;
}

// A mask that exceeded its limit is not computed again.
TEST(Matcher, HardMasksAreBoundedAndRemembered) {
    const auto trie = CrossingTokens();
    const GrammarPtr far = Gbnf("root ::= (.?){300} \"x\"");
    auto matcher = Matcher::Make(far, trie);
    ASSERT_TRUE(matcher.ok());
    EXPECT_LT(StepsOf(*matcher, *trie, true), 50'000u) << "one reading after each text";
    const uint64_t first = StepsOf(*matcher, *trie, true);
    EXPECT_EQ(StepsOf(*matcher, *trie, true), first);
    // The longest token can be parsed in 2^16 ways.
    const auto tokenizer = tokenizer::Tokenizer::Make(
        tokenizer::TinyBytePair({"x x", "xx xx", "xxxx xxxx", "xxxxxxxx xxxxxxxx"}));
    ASSERT_TRUE(tokenizer.ok());
    const auto long_tokens = TokenTrie::Make(**tokenizer);
    const auto apart = Matcher::Make(
        Gbnf("root ::= a | b | \"\"\na ::= \"x\" root \"1\"\nb ::= \"x\" root \"2\""), long_tokens);
    ASSERT_TRUE(apart.ok());
    EXPECT_GT(StepsOf(*apart, *long_tokens, false), 1000u);
    const Matcher again = *apart;  // for another request
    EXPECT_LT(StepsOf(again, *long_tokens, false), 100u);
}

TEST(Matcher, MasksAgreeWithAccept) {
    const auto trie = CrossingTokens();
    std::mt19937 random(7);
    for (const char* gbnf :
         {"root ::= \"{\" pair (\", \" pair)* \"}\"\npair ::= str \": \" (str | num | root)\n"
          "str ::= \"\\\"\" ([^\"\\\\] | \"\\\\\" [\"\\\\n])* \"\\\"\"\nnum ::= \"-\"? [0-9]+",
          "root ::= (word \" \"?)* \".\"\nword ::= [a-z]+ | [\\u00e9\\u20ac]",
          "root ::= \"a\"{3,5} | ab*\nab ::= \"ab\" \"c\"?", "root ::= [^a] root | \"a\" .{0,3}"}) {
        const auto fresh = Matcher::Make(Gbnf(gbnf), trie);
        ASSERT_TRUE(fresh.ok());
        for (int round = 0; round < 6; ++round) {
            Matcher matcher = *fresh;
            std::string text;
            std::vector<uint32_t> bits(trie->mask_words());
            for (int step = 0; step < 12 && !matcher.Ended(); ++step) {
                ExpectMask(matcher, *trie, text);
                ASSERT_TRUE(matcher.Allowed(bits).ok());
                auto tokens = TokensOf(bits);
                std::erase_if(tokens, [&](int32_t id) { return trie->IsEnd(id); });
                ASSERT_FALSE(tokens.empty());
                const int32_t token = tokens[random() % tokens.size()];
                ASSERT_TRUE(matcher.Accept(token).ok());
                text += trie->Bytes(token);
            }
        }
    }
}

TEST(Matcher, EndsAndCopies) {
    const auto trie = CrossingTokens();
    const auto fresh = Matcher::Make(Gbnf("root ::= \"ab\" \"c\"?"), trie);
    ASSERT_TRUE(fresh.ok());
    const int32_t end = trie->ends()[0];
    Matcher matcher = *fresh;
    EXPECT_FALSE(matcher.CanEnd());
    EXPECT_EQ(matcher.Accept(end).error().code, ErrorCode::kUsage);
    EXPECT_EQ(matcher.Accept('b').error().code, ErrorCode::kUsage);
    EXPECT_EQ(matcher.Accept(-1).error().code, ErrorCode::kUsage);
    EXPECT_EQ(matcher.Accept(1'000'000).error().code, ErrorCode::kUsage);
    ASSERT_TRUE(matcher.Accept('a').ok());
    ASSERT_TRUE(matcher.Accept('b').ok());
    EXPECT_TRUE(matcher.CanEnd());
    EXPECT_FALSE(matcher.Ended());
    Matcher copy = matcher;
    ASSERT_TRUE(copy.Accept('c').ok());
    EXPECT_TRUE(copy.Ended());
    EXPECT_FALSE(matcher.Ended());
    std::vector<uint32_t> bits(trie->mask_words());
    ASSERT_TRUE(copy.Allowed(bits).ok());
    EXPECT_EQ(TokensOf(bits), std::vector<int32_t>(trie->ends().begin(), trie->ends().end()));
    ASSERT_TRUE(copy.Accept(end).ok());
    ASSERT_TRUE(copy.Allowed(bits).ok());
    EXPECT_EQ(TokensOf(bits), std::vector<int32_t>(trie->ends().begin(), trie->ends().end()));
    EXPECT_FALSE(copy.Accept('a').ok());
    ASSERT_TRUE(matcher.Accept(end).ok());
    EXPECT_TRUE(matcher.Ended());
}

TEST(Matcher, EmptyGrammarEndsAtOnce) {
    const auto trie = CrossingTokens();
    const auto matcher = Matcher::Make(Gbnf("root ::= \"\""), trie);
    ASSERT_TRUE(matcher.ok());
    EXPECT_TRUE(matcher->CanEnd());
    EXPECT_TRUE(matcher->Ended());
    std::vector<uint32_t> bits(trie->mask_words());
    ASSERT_TRUE(matcher->Allowed(bits).ok());
    EXPECT_EQ(TokensOf(bits).size(), trie->ends().size());
}

// The error names required bytes that no token has; there is no empty mask.
TEST(Matcher, DeadEnd) {
    tokenizer::TokenizerData data = tokenizer::TinySpm({"a", "b"});
    for (int byte = 0; byte < 256; ++byte) {
        data.tokens[static_cast<size_t>(3 + byte)] = fmt::format("x{}", byte);
        data.types[static_cast<size_t>(3 + byte)] = 5;
    }
    const auto trie = TokenTrie::Make(*MadeTokenizer(std::move(data)));
    auto matcher = Matcher::Make(Gbnf("root ::= \"ab\" [c\\u00e9]"), trie);
    ASSERT_TRUE(matcher.ok());
    std::vector<uint32_t> bits(trie->mask_words());
    for (int step = 0; step < 2; ++step) {
        ASSERT_TRUE(matcher->Allowed(bits).ok());
        ASSERT_EQ(TokensOf(bits).size(), 1U);
        ASSERT_TRUE(matcher->Accept(TokensOf(bits)[0]).ok());
    }
    const Status status = matcher->Allowed(bits);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(status.error().message.find("63 C3"), std::string::npos) << status.error().message;
}

TEST(Matcher, NestingIsBounded) {
    const auto trie = CrossingTokens();
    auto matcher = Matcher::Make(Gbnf("root ::= \"[\" (root (\",\" root)*)? \"]\""), trie);
    ASSERT_TRUE(matcher.ok());
    std::vector<uint32_t> bits(trie->mask_words());
    int depth = 0;
    for (; depth < 2000; ++depth) {
        ASSERT_TRUE(matcher->Allowed(bits).ok());
        if ((bits['[' / 32] >> ('[' % 32) & 1) == 0) break;
        ASSERT_TRUE(matcher->Accept('[').ok());
    }
    EXPECT_GE(depth, 500);
    EXPECT_LT(depth, 510);
    for (; depth > 0; --depth) ASSERT_TRUE(matcher->Accept(']').ok());
    EXPECT_TRUE(matcher->Ended());
}

TEST(TokenTrie, HoldsEachTokenOnce) {
    tokenizer::TokenizerData data =
        tokenizer::TinySpm({"A", "AB", "ABC", "B"});  // "A" in addition to the byte token <0x41>
    data.tokens.push_back(std::string(300, 'y'));
    data.types.push_back(1);
    data.scores.push_back(-9);
    const auto tokenizer = MadeTokenizer(std::move(data));
    const auto trie = TokenTrie::Make(*tokenizer);
    EXPECT_EQ(trie->tokens().size(), 256U + 4);  // without <unk>, <s>, </s> and the long token
    EXPECT_EQ(std::vector<int32_t>(trie->ends().begin(), trie->ends().end()),
              std::vector<int32_t>{2});
    std::string path;
    size_t seen = 0;
    for (uint32_t at = 0; at < trie->nodes()[0].end; ++at) {
        const TokenTrie::Node& node = trie->nodes()[at];
        if (node.depth > 0) {
            path.resize(node.depth - size_t{1});
            path += static_cast<char>(node.byte);
        }
        for (const int32_t token : trie->TokensAt(at)) {
            EXPECT_EQ(trie->Bytes(token), path);
            EXPECT_EQ(tokenizer->Piece(token), path);
            ++seen;
        }
    }
    EXPECT_EQ(seen, trie->tokens().size());
    EXPECT_TRUE(trie->Bytes(0).empty());
    EXPECT_TRUE(trie->Bytes(-1).empty());
}

TEST(MaskCache, EvictsLeastRecentlyUsed) {
    MaskCache cache(Gbnf("root ::= \"a\""), CrossingTokens());
    const auto mask = [] {
        auto made = std::make_shared<PlaceMask>();
        made->exits.assign(1 << 20, 0);
        return made;
    };
    for (uint32_t key = 0; key < 40; ++key) {
        cache.Keep({key}, mask());
        EXPECT_NE(cache.Find({0}), nullptr) << key;  // used all the time
        EXPECT_LE(cache.size_bytes(), MaskCache::kMostBytes);
    }
    EXPECT_EQ(cache.Find({1}), nullptr);
    EXPECT_NE(cache.Find({39}), nullptr);
}

TEST(PointSet, Utf8) {
    std::mt19937 random(3);
    for (int round = 0; round < 50; ++round) {
        PointSet set;
        for (size_t n = random() % 4; n > 0; --n) {
            const uint32_t low = random() % (round % 2 == 0 ? 0x900 : 0x110000);
            const uint32_t size = random() % (round % 3 == 0 ? 0x20000 : 0x60);
            set.push_back({low, low + size});
        }
        const PointSet normalized = Normalized(set);
        size_t points = 0, spelt = 0;
        for (const PointRange& range : normalized) points += range.high - range.low + 1;
        for (const ByteSequence& sequence : Utf8Sequences(normalized)) {
            size_t count = 1;
            std::string first, last;
            for (size_t at = 0; at < sequence.length; ++at) {
                const ByteRange bytes = sequence.bytes[at];
                count *= bytes.high - bytes.low + size_t{1};
                first += static_cast<char>(bytes.low);
                last += static_cast<char>(bytes.high);
            }
            EXPECT_TRUE(IsUtf8(first)) << round;
            EXPECT_TRUE(IsUtf8(last)) << round;
            spelt += count;
        }
        EXPECT_EQ(spelt, points);
        size_t rest = 0;
        for (const PointRange& range : Complement(set)) rest += range.high - range.low + 1;
        EXPECT_EQ(points + rest, 0x110000U - 0x800);
    }
}

}  // namespace
}  // namespace weft::grammar
