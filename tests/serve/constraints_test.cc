// The cache of compiled constraints: limits of count and bytes, least recently used first.
#include <gtest/gtest.h>

#include "serve/api/constraint.h"
#include "support/tiny_vocabulary.h"

namespace weft::serve {
namespace {

TEST(KeptConstraints, AreBounded) {
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair());
    ASSERT_TRUE(words.ok());
    Constraints many(**words);
    for (int i = 0; i < 40; ++i) {
        EXPECT_TRUE(many.Compile({"regex", fmt::format("a{{{}}}", i + 1)}).ok());
    }
    EXPECT_EQ(many.kept(), 32u);
    // Errors are cached too, each once.
    EXPECT_FALSE(many.Compile({"regex", "("}).ok());
    EXPECT_FALSE(many.Compile({"regex", "("}).ok());
    EXPECT_EQ(many.kept(), 32u);

    // Ten large constraints, of which about three fit; a single one always fits.
    const auto large = [](int i) {
        return ConstraintText{"json_schema",
                              fmt::format(R"({{"type":"string","maxLength":{}}})", 4000 + i)};
    };
    Constraints one(**words, {}, 1);
    for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(one.Compile(large(i)).ok());
        EXPECT_EQ(one.kept(), 1u);
    }
    const size_t bytes = one.Compile(large(0))->size_bytes();
    Constraints some(**words, {}, 3 * bytes + bytes / 2);
    for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(some.Compile(large(i)).ok());
        EXPECT_EQ(some.kept(), static_cast<size_t>(std::min(i + 1, 3)));
    }
}

TEST(KeptConstraints, ATenantWithManyTakesNoneOfAnother) {
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair());
    ASSERT_TRUE(words.ok());
    Constraints shared(**words);
    EXPECT_TRUE(shared.Compile({"regex", "x"}, "quiet").ok());
    for (int i = 0; i < 40; ++i) {
        EXPECT_TRUE(shared.Compile({"regex", fmt::format("a{{{}}}", i + 1)}, "busy").ok());
    }
    EXPECT_EQ(shared.kept(), 32u);
    EXPECT_TRUE(shared.Compile({"regex", "x"}, "quiet", nullptr, CompileEffort::kNone).ok());
}

// A constraint that is not cached is compiled within the caller's effort.
TEST(KeptConstraints, CompileWithinTheCallersEffort) {
    const auto words = tokenizer::Tokenizer::Make(tokenizer::TinyBytePair());
    ASSERT_TRUE(words.ok());
    Constraints constraints(**words);
    const auto code = [&](const ConstraintText& text, CompileEffort effort) {
        const auto matcher = constraints.Compile(text, "", nullptr, effort);
        return matcher.ok() ? ErrorCode::kIo : matcher.error().code;
    };
    const ErrorCode done = ErrorCode::kIo;
    std::string members;
    for (int i = 0; i < 400; ++i) {
        members += fmt::format(R"({}"m{}":{{"type":"string","pattern":"^[a-z]{{1,40}}$"}})",
                               i == 0 ? "" : ",", i);
    }
    const std::vector<ConstraintText> heavy = {
        {"json_schema", fmt::format(R"({{"type":"object","properties":{{{}}}}})", members)},
        {"regex", "(([a-z]{1,60}x){1,60}|y){1,9}"},
        {"grammar", R"(root ::= ("a" [a-z]{1,60} | "b" [a-z]{1,60}){1,60})"},
    };
    for (const ConstraintText& text : heavy) {
        SCOPED_TRACE(text.kind);
        const size_t before = constraints.kept();
        EXPECT_EQ(code(text, CompileEffort::kNone), ErrorCode::kCancelled);
        EXPECT_EQ(code(text, CompileEffort::kSome), ErrorCode::kCancelled);
        EXPECT_EQ(constraints.kept(), before) << "what was put off is not remembered";
        EXPECT_EQ(code(text, CompileEffort::kAll), done);
        EXPECT_EQ(code(text, CompileEffort::kNone), done) << "it is known";
    }
    for (const ConstraintText& text :
         {ConstraintText{"json_schema", R"({"type":"integer"})"}, ConstraintText{"regex", "[a-z]+"},
          ConstraintText{"json_object", ""}}) {
        SCOPED_TRACE(text.kind);
        EXPECT_EQ(code(text, CompileEffort::kNone), ErrorCode::kCancelled);
        EXPECT_EQ(code(text, CompileEffort::kSome), done);
    }
}

}  // namespace
}  // namespace weft::serve
